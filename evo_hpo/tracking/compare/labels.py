"""What to call settings that are compared: what differs, and where one choice brought the rest along, that choice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evo_hpo.config.species import PARTS
from evo_hpo.tracking.progress import short_names

SHOWN = 3  # single keys in a label, next to options and classes
SPACE = "evolution.space."


@dataclass(frozen=True)
class Setting:
    """What a run was made with: dotted key -> value, and dotted key -> where that was written."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]


def labels(settings: Sequence[Setting]) -> list[str]:
    """Of each setting what tells it from the others; those that are still alike are told apart among themselves."""
    found = _told(settings)
    for label in dict.fromkeys(found):
        alike = [place for place, other in enumerate(found) if other == label]
        if 1 < len(alike) < len(settings):
            for place, more in zip(alike, labels([settings[place] for place in alike]), strict=True):
                found[place] = f"{label}, {more}"
    return found


def differing_keys(settings: Sequence[Setting]) -> list[str]:
    """Keys that do not have the same value in all settings."""
    keys = sorted(set().union(*(setting.values for setting in settings)))
    return [key for key in keys if len({repr(setting.values.get(key)) for setting in settings}) > 1]


def _told(settings: Sequence[Setting]) -> list[str]:
    """Of each setting its options (`evolution=gated`), else its classes (`strategy=Gated`), and the keys left over."""
    keys = _causes(settings)
    told: list[list[str]] = [[] for _ in settings]
    for group in dict.fromkeys(key.partition(".")[0] for key in keys):
        options = [_options(setting, group) for setting in settings]
        if all(options) and len({tuple(option) for option in options}) > 1:
            keys = [key for key in keys if not all(_of_option(setting, group, key) for setting in settings)]
            for words, own in zip(told, options, strict=True):
                # an option that all build on says nothing, unless it is all there is
                words.append(f"{group}={'+'.join([o for o in own if not all(o in other for other in options)] or own)}")
    nodes = [key.removesuffix("._target_") for key in keys if key.endswith("._target_")]
    nodes = [node for node in nodes if not any(node.startswith(f"{above}.") for above in nodes)]
    keys = [key for key in keys if not any(f"{key}.".startswith(f"{node}.") for node in nodes)]
    space = [key for key in keys if f"{key}.".startswith(SPACE)]
    summed = len(space) > SHOWN
    keys = sorted((key for key in keys if not (summed and key in space)), key=lambda key: "generations" not in key)
    names = short_names([*nodes, *(key for key in keys if key not in space)]) | {key: key for key in space}
    for words, setting in zip(told, settings, strict=True):
        words += [f"{names[node]}={name}" for node in nodes if (name := _class(setting, node))]
        words += [f"{names[key]}={setting.values[key]}" for key in keys if key in setting.values][:SHOWN]
        if summed:
            size = sum(key.startswith(SPACE) and key.endswith(".type") for key in setting.values)
            words.append(f"space of {size} keys")
        if not words:
            words += [f"without {names[key]}" for key in keys[:SHOWN]]
    return [", ".join(words) for words in told]


def _causes(settings: Sequence[Setting]) -> list[str]:
    """The keys that differ, without those that only repeat or follow another."""
    keys = differing_keys(settings)

    def repeats(key: str) -> bool:
        of_stage = re.fullmatch(r"pipeline\.stages\.[^.]+\.(.+)", key)
        return bool(of_stage) and all(s.values.get(key) == s.values.get(of_stage[1]) for s in settings if of_stage)

    return [key for key in keys if not f"{key}.".startswith(PARTS) and not repeats(key)] or keys


def _options(setting: Setting, group: str) -> list[str]:
    """`gated` where keys came from conf/evolution/gated.yaml; `grpo` and `ppo` where one builds on the other."""
    under = (source for key, source in setting.sources.items() if key.startswith(f"{group}."))
    found = (re.search(rf"(?:^|/){group}/([^/]+)\.yaml", source) for source in under if not _overridden(source))
    return list(dict.fromkeys(match[1] for match in found if match))


def _of_option(setting: Setting, group: str, key: str) -> bool:
    """Whether an option of the group brought the key along, or the setting has none of that name."""
    source = setting.sources.get(key, "")
    brought = not _overridden(source) and re.search(rf"(?:^|/){group}/", source)
    return key.startswith(f"{group}.") and (key not in setting.values or bool(brought))


def _overridden(source: str) -> bool:
    return source.startswith("override ")


def _class(setting: Setting, node: str) -> str:
    """Name of the class at `node`, what is there instead of one, or nothing."""
    return str(setting.values.get(f"{node}._target_", setting.values.get(node, ""))).rpartition(".")[2]
