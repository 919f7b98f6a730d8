"""Why Hydra could not compose a config, as sentences with the nearest legal choice."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError
from yaml.error import MarkedYAMLError

from evo_hpo.config.provenance import shown
from evo_hpo.tracking.secrets import scrub

INSTALLABLE = {("hydra/launcher", "joblib"): "pip install 'evo-hpo[joblib]' brings it"}


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice that `word` was probably meant to be."""
    found = difflib.get_close_matches(word, list(choices), cutoff=cutoff)
    swapped = [choice for choice in found if sorted(choice) == sorted(word)]  # the same letters in another order
    return next(iter(swapped or found), None)


def unknown_key(key: str, source: str | None, legal: Iterable[str]) -> str:
    """The sentence for a key that does not exist; `legal` are full dotted keys."""
    known = list(legal)
    guess = _nearest_key(key, known)
    where = f" ({source})" if source else ""
    if guess:
        return f"there is no key '{key}'{where}; did you mean {guess}?"
    parent = key.rpartition(".")[0]
    beside = sorted({k for k in known if k.rpartition(".")[0] == parent})
    return f"there is no key '{key}'{where}" + (f"; there are: {', '.join(beside)}" if beside else "")


def yaml_problem(error: YAMLError) -> str:
    """A YAML file that cannot be read: which, where, why."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}: this is not YAML: {error.problem}"
    return f"a config file is not YAML: {error}"


def composition_problems(
    loader: ConfigLoaderImpl, config_name: str, overrides: Sequence[str], error: Exception
) -> list[str]:
    """Look at each override on its own and say what is wrong with it; fall back on Hydra's own words.

    Args:
        loader: over the same folders that failed to compose.
        error: what Hydra raised, for problems that no override causes (a defaults list that names a missing file).
    """
    parsed, problems = _parse(overrides)
    groups = [o for o in parsed if loader.repository.group_exists(o.key_or_group)]
    keys = [o for o in parsed if o not in groups]
    for override in groups:
        problems += _group_problems(loader, override)
    problems += [_sweep_problem(o, o in groups) for o in parsed if o.is_sweep_override()]
    if not problems:
        problems += _key_problems(loader, config_name, [str(o.input_line) for o in groups], keys)
    return problems or [_in_hydras_words(error)]


def _parse(overrides: Sequence[str]) -> tuple[list[Override], list[str]]:
    parser = OverridesParser.create()
    parsed: list[Override] = []
    problems: list[str] = []
    for line in overrides:
        try:
            parsed += parser.parse_overrides([line])
        except OverrideParseException as error:
            safe = _hidden(line)
            reason = error.message.splitlines()[0].strip().rstrip(".")
            if "=" not in line:
                problems.append(f"cannot read '{safe}': overrides are written key=value")
            else:
                problems.append(f"cannot read the override '{safe}' ({reason}); quote its value: key=\"'…'\"")
    return parsed, problems


def _group_problems(loader: ConfigLoaderImpl, override: Override) -> list[str]:
    group = override.key_or_group
    if override.is_delete() or override.is_sweep_override():
        return []
    value = override.value()
    options = loader.get_group_options(group, ObjectType.CONFIG)
    if value is None:
        return [f"{group}=null chooses nothing; choose one of {', '.join(options)}, or leave it out"]
    names = value if isinstance(value, list) else [value]
    return [missing_option(group, str(name), options) for name in names if str(name) not in options]


def missing_option(group: str, name: str, options: Sequence[str]) -> str:
    """The sentence for a group option that does not exist."""
    guess = nearest(name, options, cutoff=0.5)
    hint = f"; did you mean {guess}?" if guess else ";"
    extra = f" ({INSTALLABLE[group, name]})" if (group, name) in INSTALLABLE else ""
    return f"there is no {group} '{name}'{extra}{hint} there are: {', '.join(sorted(options))}"


def _sweep_problem(override: Override, is_group: bool) -> str:
    line = shown(override)
    key, _, value = line.partition("=")
    otherwise = "choose one" if is_group else f"write {key}=[{value}] for a list"
    return f"'{line}' holds several values: add -m to run each of them, or {otherwise}"


def _key_problems(
    loader: ConfigLoaderImpl, config_name: str, groups: list[str], overrides: Sequence[Override]
) -> list[str]:
    try:
        tree = loader.load_configuration(config_name, groups, run_mode=RunMode.RUN)
    except (HydraException, OmegaConfBaseException, ValueError):
        return []
    legal = dotted_keys(tree)
    problems: list[str] = []
    for override in overrides:
        key, line = override.key_or_group, shown(override)
        if override.package is not None:
            problems.append(f"there is no config group '{key}' ({line})")
        elif key.startswith("hydra."):
            continue
        elif override.is_add():
            if key in legal:
                problems.append(f"{key} is there already; write {line.removeprefix('+')}")
        elif not override.is_force_add() and key not in legal:
            group = key.replace(".", "/")
            if loader.repository.group_exists(group):
                problems.append(f"{key} is chosen as a whole: write {group}=… instead of {line}")
            else:
                problems.append(_of_another_option(loader, key, line) or unknown_key(key, f"override {line}", legal))
        elif not override.is_force_add() and isinstance(override.value(), dict):
            for absent in _absent(override.value(), key, legal):
                problems.append(f"{key} has no key '{absent}'; to add it write ++{line}")
    return problems


def _of_another_option(loader: ConfigLoaderImpl, key: str, line: str) -> str:
    """The sentence for a key that the group has only with another option; empty if no option has it."""
    group = key.partition(".")[0]
    having = []
    for option in loader.get_group_options(group, ObjectType.CONFIG) if loader.repository.group_exists(group) else ():
        try:
            tree = loader.load_configuration(f"{group}/{option}", [], run_mode=RunMode.RUN)
        except (HydraException, OmegaConfBaseException, ValueError):
            continue
        if key in dotted_keys(tree):
            having.append(f"{group}={option}")
    if not having:
        return ""
    return (
        f"there is no key '{key}' with the {group} that is chosen (override {line}); it belongs to {', '.join(having)}"
    )


def _absent(value: Any, key: str, legal: Sequence[str]) -> Iterator[str]:
    """Keys of the mapping `value`, which is written for `key`, that are not there."""
    for name, inner in value.items():
        if f"{key}.{name}" not in legal:
            yield str(name)
        elif isinstance(inner, dict):
            yield from (f"{name}.{absent}" for absent in _absent(inner, f"{key}.{name}", legal))


def dotted_keys(tree: DictConfig) -> list[str]:
    """Every key of a composed config, inner nodes included, without Hydra's own."""
    result: list[str] = []

    def walk(node: DictConfig, prefix: str) -> None:
        for key, value in node.items_ex(resolve=False):
            dotted = f"{prefix}{key!s}"
            if dotted == "hydra":
                continue
            result.append(dotted)
            if isinstance(value, DictConfig) and not (value._is_none() or value._is_interpolation()):
                walk(value, f"{dotted}.")

    if OmegaConf.is_dict(tree):
        walk(tree, "")
    return result


def _nearest_key(key: str, legal: Sequence[str]) -> str | None:
    parent, _, last = key.rpartition(".")
    beside = [k for k in legal if k.rpartition(".")[0] == parent]
    guess = nearest(last, [k.rpartition(".")[2] for k in beside])
    if guess:
        return f"{parent}.{guess}" if parent else guess
    elsewhere = sorted((k for k in legal if last in (k.rpartition(".")[2], _initials(k))), key=len)
    return elsewhere[0] if elsewhere else nearest(key, legal)


def _initials(key: str) -> str:
    """`lr` of `algorithm.optimizer.learning_rate`."""
    return "".join(word[:1] for word in key.rpartition(".")[2].split("_"))


def _in_hydras_words(error: Exception) -> str:
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        if error.options:
            file = str(error).partition(":")[0].removeprefix("In ").strip().strip("'")
            return f"{file}.yaml: {missing_option(group, name, error.options)}"
    if unmatched := re.search(r"Could not override '([^']+)'. No match in the defaults list", str(error)):
        group = unmatched[1]
        above = group.rpartition("/")[0] or group
        return f"{group} cannot be chosen here: nothing that is chosen has such a part; choose another {above}"
    if twice := re.search(
        r"Multiple values for ([^.]+)\. To override a value use 'override [^:]+: ([^']+)'", str(error)
    ):
        return f"{twice[1]} is chosen already; write {twice[1]}={twice[2]}, without the +"
    parts = [str(error), str(error.__cause__ or "")]
    return _hidden(" ".join(" ".join(parts).split()))


def _hidden(line: str) -> str:
    return str(scrub({"line": line})["line"])
