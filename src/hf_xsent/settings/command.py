"""Turn a function of one settings class into a command, which Python and the command line call in the same way."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from functools import update_wrapper
from typing import Any, Generic, TypeVar, cast

from hf_xsent.errors import RecipeError, did_you_mean, naming_flags
from hf_xsent.settings.declare import default_of, positional_names, settings_of, types_of
from hf_xsent.settings.read import Flags, read_settings, split_arguments
from hf_xsent.settings.recipes import is_recipe, recipe_file, recipe_names
from hf_xsent.settings.yaml12 import read_mapping

Settings = TypeVar("Settings")
Result = TypeVar("Result")
Reader = Callable[[Sequence[Mapping[str, Any]], Flags, str], Any]


class Command(Generic[Settings, Result]):
    """A function of one settings object, called with that object, with its values, or with a command line.

    In Python, the positional settings, then the required ones and those ``by_position`` may be given without their
    names, in the order of declaration.

    >>> from dataclasses import dataclass
    >>> from hf_xsent.settings.declare import setting
    >>> @dataclass(frozen=True)
    ... class GreetSettings:
    ...     name: str = setting(None, "Greet this person.", positional=True, required=True)
    ...     times: int = setting(1, "Greet N times.", at_least=1)
    >>> @command(GreetSettings)
    ... def greet(settings):
    ...     return f"hello {settings.name} " * settings.times
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
        self._positional = [*dict.fromkeys([*positional_names(self.fields), *ordered])]
        self.__signature__ = self._signature()

    def __call__(self, *values: Any, recipe: str | os.PathLike[str] | None = None, **settings: Any) -> Result:
        """Call the function with a settings object, or with values by position and name over those of a recipe."""
        if len(values) == 1 and isinstance(values[0], self.kind) and not settings and recipe is None:
            return self.function(values[0])
        names = self._positional
        if values and recipe is None and is_recipe(values[-1], len(values) > len(names)):  # as on the command line
            *values, recipe = values  # type: ignore[assignment]
        if len(values) > len(names):
            meant = did_you_mean(str(values[-1]), recipe_names())
            raise RecipeError(f"{self.function.__name__} takes {len(names)} values by position: name the others{meant}")
        return self.function(self.read(dict(zip(names, values, strict=False)) | settings, {}, recipe))

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

    def _signature(self) -> inspect.Signature:
        kinds = inspect.Parameter
        parameters = [
            kinds(
                name,
                kinds.POSITIONAL_OR_KEYWORD if name in self._positional else kinds.KEYWORD_ONLY,
                default=default_of(self.fields[name]),
                annotation=self.fields[name].type,
            )
            for name in [*self._positional, *(name for name in self.fields if name not in self._positional)]
        ]
        recipe = kinds("recipe", kinds.KEYWORD_ONLY, default=None, annotation="str | PathLike[str] | None")
        return inspect.Signature([*parameters, recipe])


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
