"""Plain values against a type: pydantic does the checking, numbers and flags are strict, errors become sentences."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import CoreConfig, SchemaValidator, ValidationError, core_schema

from evo_hpo.config.errors import Problems
from evo_hpo.config.explain import nearest, unknown_key
from evo_hpo.config.provenance import source_of
from evo_hpo.tracking.secrets import is_secret_name, scrub

Provenance = Mapping[str, str]
MISSING = "???"
_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)


def checked(hint: Any, value: Any, key: str, provenance: Provenance, problems: Problems) -> Any:
    """`value` as the type `hint`, or None with the reasons added to `problems`.

    A whole number is a legal float, and the text `1e-3` a legal number; a flag is no number and a number no flag.

    Args:
        hint: any type, `Annotated` ranges and (nested) dataclasses included.
        key: dotted key of the value, for the sentences; "" for the whole config.
    """
    try:
        return _validator(hint).validate_python((value,))[0]
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = _path_in(value, detail["loc"][1:])
            where = ".".join([part for part in (key, *map(str, path)) if part])
            problems.add(where, _sentence(dict(detail), where, hint, path, provenance))
        return None


def fields_of(cls: type) -> dict[str, Any]:
    """Name -> type of every key that the dataclass `cls` is made from."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}


def required_fields(cls: type) -> set[str]:
    """Keys of the dataclass `cls` that have no default."""
    none = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(cls) if f.init and f.default is none and f.default_factory is none}


def show(key: str, value: Any) -> str:
    """`value` as it may be printed."""
    last = key.rpartition(".")[2]
    if is_secret_name(last) and not isinstance(value, bool | int | float | types.NoneType):
        return "a hidden value"
    return repr(scrub({last: value})[last])


def from_where(key: str, provenance: Provenance) -> str:
    """` (conf/…)`, or nothing where the source is not known."""
    source = source_of(provenance, key)
    return f" ({source})" if source else ""


def needed(key: str, provenance: Provenance, hint: str = "value") -> str:
    """The sentence for a key that has no value yet."""
    return f"{key} is needed{from_where(key, provenance)}: write {key}=<{hint}>"


@cache
def _validator(hint: Any) -> SchemaValidator:
    # A tuple of one, because pydantic takes a configuration for anything but a bare dataclass.
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[hint], config=_CONFIG)
    config = CoreConfig(allow_inf_nan=False, extra_fields_behavior="forbid")
    return SchemaValidator(_strict(adapter.core_schema), config)


def _strict(schema: Any) -> Any:
    """The same pydantic schema where true is not 1, 1 is not true, and text is a number only if it reads like one."""
    if isinstance(schema, list | tuple):
        return type(schema)(_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return schema
    result = {key: _strict(item) for key, item in schema.items()}
    if schema.get("type") in ("bool", "int", "float"):
        result["strict"] = True
    if schema.get("type") in ("int", "float"):
        return core_schema.no_info_before_validator_function(_number, typing.cast(core_schema.CoreSchema, result))
    return result


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _path_in(value: Any, loc: Sequence[str | int]) -> list[str | int]:
    """The part of pydantic's location that is a path in the data; it also names union members and validators."""
    path: list[str | int] = []
    for index, part in enumerate(loc):
        if isinstance(value, Mapping):
            if part in value:
                value = value[part]
            elif index < len(loc) - 1:
                continue
            path.append(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(part, int):
            value = value[part]
            path.append(part)
    return path


def _sentence(error: dict[str, Any], key: str, hint: Any, path: list[str | int], provenance: Provenance) -> str:
    kind, value, context = str(error["type"]), error["input"], error.get("ctx", {})
    if kind in ("missing", "missing_argument"):
        return needed(key, provenance)
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        parent = key.rpartition(".")[0]
        legal = [f"{parent}.{name}" if parent else name for name in _legal_at(hint, path[:-1])]
        return unknown_key(key, source_of(provenance, key), legal)
    if kind in ("literal_error", "enum"):
        return _choice_sentence(key, value, str(context.get("expected", "")), provenance)
    if kind in ("value_error", "assertion_error"):
        return f"{key}: {context.get('error', error['msg'])}{from_where(key, provenance)}"
    must = _MUST.get(kind)
    must = must.format(**context) if must else f"be something else ({error['msg']})"
    return f"{key} must {must}, not {show(key, value)}{_advice(kind, value)}{from_where(key, provenance)}"


_MUST = {
    "float_type": "be a number",
    "float_parsing": "be a number",
    "finite_number": "be a finite number",
    "int_type": "be a whole number",
    "int_parsing": "be a whole number",
    "int_from_float": "be a whole number",
    "bool_type": "be true or false",
    "bool_parsing": "be true or false",
    "string_type": "be text",
    "path_type": "be a path",
    "none_required": "be null",
    "greater_than": "be greater than {gt:g}",
    "greater_than_equal": "be at least {ge:g}",
    "less_than": "be less than {lt:g}",
    "less_than_equal": "be at most {le:g}",
    "too_short": "have at least {min_length} entries",
    "too_long": "have at most {max_length} entries",
    "list_type": "be a list",
    "tuple_type": "be a list",
    "set_type": "be a list",
    "dict_type": "be a mapping of keys to values",
    "dataclass_type": "be a mapping with the keys of {class_name}",
    "dataclass_exact_type": "be a mapping with the keys of {class_name}",
    "is_instance_of": "be built from the `_target_` of a {class}",
}


def _advice(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f"; quote it: \"'{value}'\""
    if isinstance(value, str) and value.strip().lower() in ("none", "null", "~"):
        return "; nothing is written null, without quotes"
    return ""


def _choice_sentence(key: str, value: Any, expected: str, provenance: Provenance) -> str:
    choices = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    guess = nearest(str(value), choices)
    advice = f"; did you mean {guess}?" if guess else ""
    if isinstance(value, bool) and {"on", "off", "yes", "no"} & set(choices):
        advice = "; YAML reads on and off as true and false, so quote them"
    return f"{key} must be one of {', '.join(choices)}, not {show(key, value)}{advice}{from_where(key, provenance)}"


def _legal_at(hint: Any, path: Sequence[str | int]) -> list[str]:
    """Keys of the dataclass that stands at `path` below the type `hint`."""
    candidates = [hint]
    for part in path:
        candidates = [inner for candidate in candidates for inner in _step(candidate, part)]
    classes = [c for candidate in candidates for c in _plain(candidate) if dataclasses.is_dataclass(c)]
    return [name for cls in classes for name in fields_of(typing.cast(type, cls))]


def _plain(hint: Any) -> Iterator[Any]:
    """The alternatives of a type without its annotations."""
    if get_origin(hint) is Annotated:
        yield from _plain(get_args(hint)[0])
    elif get_origin(hint) in (typing.Union, types.UnionType):
        for alternative in get_args(hint):
            yield from _plain(alternative)
    else:
        yield hint


def _step(hint: Any, part: str | int) -> Iterator[Any]:
    for plain in _plain(hint):
        if dataclasses.is_dataclass(plain):
            if part in (known := fields_of(typing.cast(type, plain))):
                yield known[str(part)]
        elif get_args(plain):
            yield get_args(plain)[-1]
