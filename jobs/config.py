"""From a TOML file and ``--set key=value`` overrides to a job's frozen ``Config``.

A config is a frozen dataclass whose fields are numbers, strings, booleans, lists of strings, tables
of free keys, or dataclasses of the same kind. :func:`load` refuses unknown keys, missing keys and
values of the wrong type with a :class:`ConfigError` that names the key, what was given and what is
allowed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, Literal, NoReturn, TypeVar, Union

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
Section = dict[str, Any]


class ConfigError(ValueError):
    """A job was configured wrongly; the text is one line that says what to change."""


def setting(about: str, **kwargs: Any) -> Any:
    """A dataclass field that ``--help`` describes with ``about``; ``kwargs`` as in ``field``."""
    return dataclasses.field(metadata={"about": about}, **kwargs)


def load(kind: type[T], about: str, argv: Sequence[str] | None = None) -> T:
    """Read ``argv`` (default: the command line) into a ``kind``.

    Raises:
        ConfigError: for anything wrong with the arguments, the file or a value in it.
        SystemExit: after printing the help that ``--help`` asks for.
    """
    arguments = _parser(kind, about).parse_args(argv)
    values = _read(arguments.config) if arguments.config else {}
    for override in arguments.overrides:
        _merge(values, _parse_override(override))
    return typing.cast(T, build(kind, values))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; --help lists what is allowed")


def _parser(kind: type, about: str) -> argparse.ArgumentParser:
    parser = _Parser(
        description=about,
        epilog="keys:\n" + "\n".join(_help(kind, "")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE.toml", help="where the keys below are read from")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="overrides",
        action="append",
        default=[],
        help="one key more, or in place of the file's; dotted for tables, the value as in TOML "
        "(a string needs no quotes); may be repeated",
    )
    return parser


def _help(kind: type, prefix: str) -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, about = prefix + field.name, field.metadata.get("about", "")
        section = next(filter(dataclasses.is_dataclass, _arms(hints[field.name])), None)
        if section is not None:
            yield f"  [{key}]  {about}{_default_text(field)}"
            yield from _help(typing.cast(type, section), f"{key}.")
        else:
            yield f"  {key}: {describe(hints[field.name])}{_default_text(field)}\n      {about}"


def _default_text(field: dataclasses.Field[Any]) -> str:
    if _is_required(field):
        return ", required"
    if field.default in (MISSING, None):
        return ""
    return f", default {json.dumps(field.default)}"


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _read(path: str) -> Section:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"--config: given {path!r}, {error.strerror}; name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path!r} is not valid TOML: {error}") from None


def _parse_override(text: str) -> Section:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set: given {text!r}, allowed: KEY=VALUE")
    for candidate in (text, f"{key}={json.dumps(value)}"):  # what is no TOML value is a string
        try:
            return tomllib.loads(candidate)
        except tomllib.TOMLDecodeError:
            continue
    raise ConfigError(f"--set: given {text!r}, allowed: a key such as train.path before the '='")


def _merge(values: Section, more: Section) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = value


def build(kind: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    """The dataclass ``kind`` from ``values``, keys named ``prefix + key`` in errors."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in fields:
            raise ConfigError(f"{prefix}{key}: no such key, allowed: {_listed(prefix, fields)}")
    for name, field in fields.items():
        if name not in values and _is_required(field):
            raise ConfigError(f"{_missing(prefix + name, hints[name])}")
    return kind(**{k: convert(hints[k], v, prefix + k) for k, v in values.items()})


def _listed(prefix: str, names: Mapping[str, Any]) -> str:
    return ", ".join(prefix + name for name in names)


def _missing(key: str, annotation: Any) -> str:
    if dataclasses.is_dataclass(annotation):
        required = [f.name for f in dataclasses.fields(annotation) if _is_required(f)]
        return f"{key}: missing, set at least {_listed(key + '.', dict.fromkeys(required))}"
    return f"{key}: missing, allowed: {describe(annotation)}"


def convert(annotation: Any, value: Any, key: str) -> Any:
    """``value`` as TOML gave it, as the first arm of ``annotation`` that takes it."""
    for arm in _arms(annotation):
        if dataclasses.is_dataclass(arm) and isinstance(value, dict):
            return build(typing.cast(type, arm), value, f"{key}.")
        if _fits(arm, value):
            return tuple(value) if isinstance(value, list) else value
    raise ConfigError(f"{key}: given {_shown(value)}, allowed: {describe(annotation)}")


def _arms(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return tuple(arm for arm in typing.get_args(annotation) if arm is not type(None))
    return (annotation,)


def _fits(arm: Any, value: Any) -> bool:
    origin = typing.get_origin(arm)
    if origin is Literal:
        return value in typing.get_args(arm)
    if origin is tuple:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if arm is float:
        return type(value) in (int, float)
    return type(value) is arm


_WORDS = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


def describe(annotation: Any) -> str:
    """What ``annotation`` allows, in words."""
    return " or ".join(_describe_arm(arm) for arm in _arms(annotation))


def _describe_arm(arm: Any) -> str:
    origin = typing.get_origin(arm)
    if origin is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(arm)))
    if origin is tuple:
        return "a list of strings"
    return _WORDS.get(arm, "a table")


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)
