"""Refuse tokens and passwords in settings, which are written into recipes, reports, checkpoints and logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hf_xsent.errors import RecipeError

_NAME = r"(?:[\w-]*[_-])?(?:token|password|passwd|secret|(?:api|access|secret)[_-]?key)"
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_SECRET_KEY = re.compile(_NAME.replace("_-", "_"), re.IGNORECASE)  # others name models or texts
_SECRET_VALUE = re.compile(
    r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"  # a Hub token
    r"|://[^/?#\s]*:[^/?#\s]*@"  # https://user:password@host
    rf"|[?&](?:{_NAME}|sig|signature|x-amz-\w+)=",  # https://host/file?token=…
    re.IGNORECASE,
)
_SECRET_ARGUMENT = re.compile(rf"(?:--|[\w.-]*\.)?{_NAME}=.+", re.IGNORECASE | re.DOTALL)


def refuse_secrets(settings: Mapping[Any, Any], where: str = "") -> None:
    """Raise an error for the first setting that holds a token or password; the message does not contain it."""
    for path, name, value in _walk(settings):
        if _SECRET_KEY.fullmatch(name) and value not in (None, "", [], False) or _holds_secret(value):
            raise RecipeError(f"{where}{_refusal(path)}")


def refuse_secret_arguments(arguments: Sequence[str]) -> None:
    """Raise an error for the first argument of a command line that holds a token or password."""
    for number, argument in enumerate(arguments, 1):
        name = argument.partition("=")[0]
        following = arguments[number] if number < len(arguments) else "--"
        named = argument.startswith("--") and _SECRET_NAME.fullmatch(argument[2:]) and not following.startswith("--")
        if named or _SECRET_ARGUMENT.fullmatch(argument):
            raise RecipeError(_refusal(name))
        if _holds_secret(argument):
            raise RecipeError(_refusal(f"argument {number}"))


def _refusal(what: str) -> str:
    return (
        f"{what} holds a token or password, which would be written into files and logs: remove it; for the Hub, set "
        "HF_TOKEN or run 'hf auth login'"
    )


def _walk(value: Any, path: str = "", name: str = "") -> Iterator[tuple[str, str, Any]]:
    """Iterate over the path, name and value of each setting; keys are values too, because they may hold a secret."""
    if not isinstance(value, Mapping):
        yield path, name, value
    if isinstance(value, list | tuple):
        for element in value:
            yield from _walk(element, path)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield path or "a key", "", key
            yield from _walk(inner, f"{path}.{key}".removeprefix("."), str(key))


def _holds_secret(value: Any) -> bool:
    return isinstance(value, str) and _SECRET_VALUE.search(value) is not None
