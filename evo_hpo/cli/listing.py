"""`list`: config groups, their options with the first comment line of each, and the search spaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.types import RunMode
from omegaconf import OmegaConf

from evo_hpo.cli.matrix import matrix
from evo_hpo.config import paths, search
from evo_hpo.config.compose import compose, loader
from evo_hpo.config.errors import UserError
from evo_hpo.config.explain import nearest
from evo_hpo.config.hints import about
from evo_hpo.config.space import flat

WITH_SPACE = ("evolution", search.GROUP)


def groups() -> dict[str, dict[str, Path]]:
    """Group -> option -> its file, all sorted; groups inside groups are named `algorithm/advantage`."""
    result: dict[str, dict[str, Path]] = {}
    for folder in sorted(path for path in paths.conf().rglob("*") if path.is_dir()):
        options = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
        if options:
            result[folder.relative_to(paths.conf()).as_posix()] = options
    result[search.GROUP] = {file.stem: file for file in sorted(paths.sweeps().glob("*.yaml"))}
    return result


def print_list(group: str | None) -> None:
    """Print every group, or one with more about each option.

    Raises:
        UserError: a group that does not exist.
    """
    known = groups()
    if group is None:
        for name, options in known.items():
            print(f"{name}: {', '.join(options) or 'none yet'}")
        print("\nMore about the options of one: list <group>. To choose one: python launch.py <group>=<option>")
        return
    if group not in known:
        guess = nearest(group, known)
        hint = f"; did you mean {guess}?" if guess else ";"
        raise UserError(f"there is no group '{group}'{hint} there are: {', '.join(known)}")
    width = max((len(option) for option in known[group]), default=0)
    for option, file in known[group].items():
        print(f"{option:{width}}  {about(file)}")
        if group in WITH_SPACE:
            for line in _space(group, option):
                print(f"{'':{width}}    {line}")
    if group == "algorithm":
        print("\nOn each axis (`granularity` may override reward, credit, ratio, KL and aggregation):\n")
        for line in matrix():
            print(line)


def _space(group: str, option: str) -> Iterator[str]:
    """One line per hyperparameter that evolves."""
    if group == "evolution":
        tree = loader().load_configuration(f"evolution/{option}", [], run_mode=RunMode.RUN)
        space: Any = OmegaConf.to_container(tree.evolution.space)
    else:
        space = compose([f"{group}={option}"]).values["evolution"]["space"]
    for key, dimension in flat(space).items():
        if dimension["type"] == "categorical":
            yield f"{key}: one of {', '.join(map(str, dimension['choices']))}"
        else:
            scale = ", logarithmic" if dimension.get("log") else ""
            times = " times its own value" if dimension.get("relative") else ""
            yield f"{key}: {dimension['low']:g} to {dimension['high']:g}{times} ({dimension['type']}{scale})"
