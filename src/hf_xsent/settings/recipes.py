"""Find a recipe: a file of the user, or by its name one that travels with the package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hf_xsent.errors import RecipeError, did_you_mean, shortened

RECIPES = Path(__file__).parents[1] / "recipes"


def recipe_names() -> list[str]:
    """Return the names of the package's recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def recipes_help() -> str:
    """Return the names of the package's recipes, their files, and the first line of each."""
    files = sorted(RECIPES.glob("*.yaml"))
    lines = (f"  {file.stem:<32} {file.read_text('utf-8').splitlines()[0].lstrip('# ')}" for file in files)
    return f"recipes of the package, in {RECIPES}:\n" + "\n".join(lines)


def is_recipe(word: Any, surplus: bool) -> bool:
    """Return whether an argument is a recipe: a YAML file; if no positional setting takes it, a JSON file or a name."""
    if not isinstance(word, str | os.PathLike):
        return False
    word = os.fspath(word)
    return word.endswith((".yaml", ".yml")) or (surplus and (word.endswith(".json") or word in recipe_names()))


def recipe_file(recipe: str | os.PathLike[str], folder: str | Path = ".") -> Path:
    """Return the path of a recipe of the package, by its name, or of a file, relative to ``folder``."""
    if not isinstance(recipe, str | os.PathLike):
        raise RecipeError(f"recipe takes a path or a name, not {shortened(recipe)}: give values by their names")
    if os.fspath(recipe) in recipe_names():
        return RECIPES / f"{os.fspath(recipe)}.yaml"
    path = Path(folder) / recipe
    if not path.exists():
        beside = (file.name for file in path.parent.glob("*.y*ml"))
        raise RecipeError(
            f"no recipe {path}: it is neither a file nor the name of a recipe of the package"
            f"{did_you_mean(path.name, beside) or did_you_mean(path.stem, recipe_names())}"
        )
    return path
