"""`_target_` nodes -> objects, from allowed packages only and with every key checked."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from evo_hpo.config.errors import Problems
from evo_hpo.config.explain import nearest, unknown_key
from evo_hpo.config.provenance import source_of
from evo_hpo.config.validate import Provenance, checked, fields_of, from_where, needed, required_fields, show

TARGET = "_target_"
ALLOWED = ("algorithms", "envs", "evo_hpo", "rewards")


class Refused(Exception):
    """A `_target_` that cannot be used, with the reason."""


@dataclass
class Builder:
    """Builds components and collects what is wrong with them."""

    plugins: tuple[str, ...]  # packages that are allowed besides our own
    provenance: Provenance
    problems: Problems = field(default_factory=Problems)

    def component(self, node: Any, key: str, expected: type | None) -> Any:
        """The object that `node` describes, or None with the reasons in `problems`.

        Args:
            node: mapping with a `_target_` and the keys of its class; nested `_target_` nodes are built first.
            key: dotted key of the node.
            expected: class that the component must be of; None where the type of the field above decides.
        """
        if not isinstance(node, Mapping) or TARGET not in node:
            where = from_where(key, self.provenance)
            self.problems.add(key, f"{key} must be a mapping with a `_target_`, not {show(key, node)}{where}")
            return None
        try:
            cls = self._class(node[TARGET], expected)
        except Refused as reason:
            where = from_where(f"{key}.{TARGET}", self.provenance)
            self.problems.add(f"{key}.{TARGET}", f"{key}.{TARGET}: {reason}{where}")
            return None
        before = self.problems.count
        values = self._fields(cls, node, key)
        if self.problems.count > before:
            return None
        try:
            return cls(**values)
        except (ValueError, TypeError) as error:
            self.problems.add(key, f"{key}: {error}{self._source_of_complaint(str(error), list(values), key)}")
            return None

    def _source_of_complaint(self, text: str, names: list[str], key: str) -> str:
        """Where the first field that the class's own complaint mentions was written."""
        told = [name for name in names if re.search(rf"\b{re.escape(name)}\b", text)]
        return from_where(f"{key}.{told[0] if told else TARGET}", self.provenance)

    def _fields(self, cls: type, node: Mapping[str, Any], key: str) -> dict[str, Any]:
        types = fields_of(cls)
        values: dict[str, Any] = {}
        for name in sorted(required_fields(cls) - set(node)):
            self.problems.add(f"{key}.{name}", needed(f"{key}.{name}", {}))
        for name, value in node.items():
            where = f"{key}.{name}"
            if name == TARGET:
                continue
            if name not in types:
                legal = [f"{key}.{known}" for known in types]
                source = source_of(self.provenance, where) or ""
                self.problems.add(where, unknown_key(where, source or None, legal) + _of_another_part(source))
                continue
            before = self.problems.count
            built = self._nested(value, where)
            if self.problems.count == before:
                values[name] = checked(types[name], built, where, self.provenance, self.problems)
        return values

    def _nested(self, value: Any, key: str) -> Any:
        """`value` with every component inside it built."""
        if isinstance(value, Mapping):
            if TARGET in value:
                return self.component(value, key, None)
            return {name: self._nested(item, f"{key}.{name}") for name, item in value.items()}
        if isinstance(value, list):
            return [self._nested(item, f"{key}.{index}") for index, item in enumerate(value)]
        return value

    def _class(self, target: Any, expected: type | None) -> type:
        cls = self._resolve(target)
        if not (inspect.isclass(cls) and dataclasses.is_dataclass(cls)):
            raise Refused(f"{target} is no dataclass, so it is no component")
        if not self._allowed(cls.__module__):
            raise Refused(f"{target} comes from {cls.__module__}, outside the allowed packages")
        if expected is not None and not issubclass(cls, expected):
            raise Refused(f"{target} is no {expected.__module__}.{expected.__name__}, which is what belongs here")
        if inspect.isabstract(cls):
            raise Refused(f"{target} is a base class; name one of its subclasses")
        return cls

    def _resolve(self, target: Any) -> Any:
        if not isinstance(target, str) or "." not in target:
            raise Refused(f"{target!r} is no dotted name of a class, such as envs.frozen_lake.FrozenLake")
        if not self._allowed(target):  # before any import: an import runs code
            packages = ", ".join((*ALLOWED, *self.plugins))
            top = target.partition(".")[0]
            raise Refused(
                f"{target} is not in the allowed packages ({packages}); "
                f"if {top} is a package of yours, write plugins=[{top}]"
            )
        module_name, _, class_name = target.rpartition(".")
        module = self._import(module_name)
        if not hasattr(module, class_name):
            names = [name for name, item in vars(module).items() if inspect.isclass(item)]
            guess = nearest(class_name, names)
            hint = f"; did you mean {module_name}.{guess}?" if guess else ""
            raise Refused(f"there is no {class_name} in {module_name}{hint}")
        return getattr(module, class_name)

    def _import(self, name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise Refused(f"there is no module {error.name}; look for a misspelling or install it") from error
            raise Refused(f"{name} needs the package {error.name}; install it") from error

    def _allowed(self, dotted: str) -> bool:
        return dotted.partition(".")[0] in (*ALLOWED, *self.plugins)


def _of_another_part(source: str) -> str:
    """What to do where a preset sets keys of a part that was exchanged for another."""
    if not re.fullmatch(r"conf/algorithm/\w+\.yaml", source):
        return ""
    return f"; {source} sets it for the part that it has itself: start from algorithm=grpo or ppo to choose parts"


def locate(dotted: str) -> type:
    """A class of our own by its dotted name, imported when it is needed."""
    module, _, name = dotted.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, type)
    return found
