"""Turn a function of one settings class into a command, which Python and the command line call in the same way."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from hf_xsent.errors import RecipeError, naming_flags
from hf_xsent.settings.declare import default_of, positional_names, settings_of, types_of
from hf_xsent.settings.help import parameters_help
from hf_xsent.settings.read import Flags, read_settings, split_arguments
from hf_xsent.settings.recipes import is_recipe, recipe_file
from hf_xsent.settings.yaml12 import read_mapping

if TYPE_CHECKING:
    from typing_extensions import Self

Settings = TypeVar("Settings")
Result = TypeVar("Result")
Reader = Callable[[Sequence[Mapping[str, Any]], Flags, str], Any]


class Command(Generic[Settings, Result]):
    """A function of one settings object, called with that object, with its values, or with a command line.

    In Python, the positional settings, then the required ones and those ``by_position`` need no names, in the order of
    declaration; without positional settings, the recipe.

    >>> from dataclasses import dataclass
    >>> from hf_xsent.settings.declare import setting
    >>> @dataclass(frozen=True)
    ... class GreetSettings:
    ...     name: str = setting(None, "Greet this person.", positional=True, required=True)
    ...     times: int = setting(1, "Greet N times.", at_least=1)
    >>> @command(GreetSettings)
    ... def greet(settings):
    ...     return f"hello {settings.name} " * settings.times
    >>> print(greet.__doc__.splitlines()[-1].strip())
    times: Greet N times. (at least 1; default: 1)
    >>> greet("Ada", times=2) == greet(GreetSettings("Ada", 2)) == greet.run(["Ada", "--times", "2"])
    True
    """

    def __init__(
        self,
        function: Callable[[Settings], Result],
        kind: type[Settings],
        read: Reader | None = None,
        fields: Mapping[str, Field[Any]] | None = None,
        types: Mapping[str, Any] | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.function, self.kind, self._read = function, kind, read
        self.fields = settings_of(kind) if fields is None else fields
        self.types = types_of(kind) if types is None else types
        ordered = [name for name, field in self.fields.items() if field.metadata.get("by_position")]
        words = positional_names(self.fields)
        self._positional = [*dict.fromkeys([*words, *ordered])] if words else ["recipe"]
        of_transformers = {name for name, field in self.fields.items() if {*field.metadata} == {"help"}}
        own = {name: field for name, field in self.fields.items() if name not in of_transformers}
        self.__signature__ = self._signature(own, bool(of_transformers))
        about = textwrap.indent(parameters_help(own), " " * 4)  # as docstrings of functions are
        self.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{about}"

    def __get__(self, instance: Any, owner: Any = None) -> Self:
        """Be a routine for ``help()``, which then shows the signature."""
        return self

    def __call__(self, *values: Any, **settings: Any) -> Result:
        """Call the function with a settings object, or with values by position and name over those of a recipe."""
        if len(values) == 1 and isinstance(values[0], self.kind) and not settings:
            return self.function(values[0])
        names = self._positional
        if "recipe" not in names and values and is_recipe(values[-1], len(values) > len(names)):
            names = [*names[: len(values) - 1], "recipe"]  # the last, as on the command line
        if len(values) > len(names):
            raise RecipeError(f"{self.function.__name__} takes only {', '.join(names)} by position: name the others")
        by_position = dict(zip(names, values, strict=False))
        if twice := by_position.keys() & settings:
            raise RecipeError(f"{min(twice)} is stated twice, by position and by name")
        settings = by_position | settings
        return self.function(self.read(settings, {}, settings.pop("recipe", None)))

    def read(
        self, values: Mapping[str, Any], flags: Flags | None = None, recipe: str | os.PathLike[str] | None = None
    ) -> Settings:
        """Read the settings: values replace those of the recipe, flags replace both."""
        where = "" if recipe is None else os.fspath(recipe_file(recipe))
        layers: list[Mapping[str, Any]] = [read_mapping(where)] if where else []
        layers += [values] if values else []
        if self._read is not None:
            return cast(Settings, self._read(layers, flags or {}, where))
        return read_settings(self.kind, {key: layer[key] for layer in layers for key in layer}, flags, where)

    @naming_flags()
    def parse(self, arguments: Sequence[str]) -> Settings:
        """Read the settings of a command line."""
        recipe, flags = split_arguments(arguments, self.fields, self.types)
        return self.read({}, flags, recipe)

    @naming_flags()
    def run(self, arguments: Sequence[str]) -> Result:
        """Call the function with the settings of a command line."""
        return self.function(self.parse(arguments))

    def _signature(self, own: Mapping[str, Field[Any]], others: bool) -> inspect.Signature:
        """Return positional settings, then the others by name; fields of transformers as ``**training_arguments``."""
        kinds = inspect.Parameter
        defaults = {"recipe": None} | {name: default_of(field) for name, field in own.items()}
        types = {"recipe": str | os.PathLike[str] | None, **self.types}
        by_name = [name for name in [*own, "recipe"] if name not in self._positional]
        parameters = [
            kinds(name, kind, default=defaults[name], annotation=types[name])
            for names, kind in ((self._positional, kinds.POSITIONAL_OR_KEYWORD), (by_name, kinds.KEYWORD_ONLY))
            for name in names
        ]
        if others:
            parameters.append(kinds("training_arguments", kinds.VAR_KEYWORD))
        return inspect.Signature(parameters)


def command(
    kind: type[Settings],
    read: Reader | None = None,
    fields: Mapping[str, Field[Any]] | None = None,
    types: Mapping[str, Any] | None = None,
) -> Callable[[Callable[[Settings], Result]], Command[Settings, Result]]:
    """Make a command of a function of one settings object.

    ``read(layers, flags, where)`` replaces the usual reader, with the fields and types of the flags that it reads;
    ``layers`` are the values of a recipe file and of Python.
    """

    def decorate(function: Callable[[Settings], Result]) -> Command[Settings, Result]:
        return Command(function, kind, read, fields, types)

    return decorate
