"""YAML groups and overrides -> one tree of values (Hydra), with the source of every value."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobRuntime, setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationKeyError, InterpolationToMissingValueError, OmegaConfBaseException
from yaml import YAMLError

from evo_hpo.config import paths, search
from evo_hpo.config.errors import ConfigError
from evo_hpo.config.explain import composition_problems, yaml_problem
from evo_hpo.config.provenance import TracingLoader, complete
from evo_hpo.config.species import GROUPS, compose_species
from evo_hpo.tracking.secrets import scrub

CONFIG_NAME = "config"


@dataclass(frozen=True)
class Composed:
    """Everything the YAML files and the overrides say, before it is checked."""

    values: dict[str, Any]  # plain, every interpolation resolved; "???" where a value is still needed
    provenance: dict[str, str]  # dotted key -> file or override that set it
    choices: dict[str, str]  # config group -> chosen option
    folder: Path  # where the run folder belongs, relative to the working directory


def loader(extra: Path | None = None) -> TracingLoader:
    """Hydra's config loader over `conf/`, `sweeps/` and, searched first, a folder of the user's own."""
    search.register()
    setup_globals()
    JobRuntime.instance().set("name", "launch")
    path = create_config_search_path(str(paths.conf()))
    if extra is not None:
        path.prepend(provider="command-line", path=f"file://{extra.resolve()}")
    return TracingLoader(path)


def compose(overrides: Sequence[str] = (), extra: Path | None = None) -> Composed:
    """Compose one run.

    Args:
        overrides: as on the command line, `algorithm=ppo`, `algorithm.kl.coef=0.1`.
        extra: a further folder of config groups (Hydra's `--config-dir`).
    Raises:
        ConfigError: an override, a group option or an interpolation that does not exist; every such problem is listed.
    """
    hydra = loader(extra)
    try:
        tree = hydra.load_configuration(CONFIG_NAME, list(overrides), run_mode=RunMode.RUN)
    except YAMLError as error:
        raise ConfigError([yaml_problem(error)]) from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(composition_problems(hydra, CONFIG_NAME, list(overrides), error)) from error
    HydraConfig.instance().set_config(tree)  # ${hydra:…} is resolved from here
    ours = copy.deepcopy(tree)
    with open_dict(ours):
        del ours["hydra"]
    values = _resolved(ours)
    sources = complete(hydra.sources(overrides), values)
    sources |= _with_species(values, overrides, extra)
    return Composed(values, sources, _chosen(tree.hydra.runtime.choices), Path(str(tree.hydra.run.dir)))


def of_job(tree: DictConfig, overrides: Sequence[str], folder: Path, extra: Path | None = None) -> Composed:
    """The same for what Hydra hands to a job: `tree` without its hydra node, `HydraConfig` set."""
    values = _resolved(tree)
    hydra = loader(extra)
    hydra.load_configuration(CONFIG_NAME, list(overrides), run_mode=RunMode.RUN)
    choices = _chosen(HydraConfig.get().runtime.choices)
    sources = complete(hydra.sources(overrides), values) | _with_species(values, overrides, extra)
    return Composed(values, sources, choices, folder)


def _with_species(values: dict[str, Any], overrides: Sequence[str], extra: Path | None) -> dict[str, str]:
    """Compose what `evolution.species` lists into `values`; the sources of that."""

    def alike(choices: Mapping[str, str]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        none = [f"evolution.species.{group}=null" for group in GROUPS]
        composed = compose([*overrides, *(f"{group}={option}" for group, option in choices.items()), *none], extra)
        return composed.values, composed.provenance

    now = HydraConfig.instance().cfg
    sources = compose_species(values, alike)
    HydraConfig.instance().cfg = now  # which composing has changed
    return sources


def _chosen(choices: Mapping[str, Any]) -> dict[str, str]:
    return {str(group): str(option) for group, option in choices.items() if option is not None}


def expand(overrides: Sequence[str], extra: Path | None = None) -> list[list[str]]:
    """The overrides of each job of a multirun with Hydra's basic sweeper, or of the one run where nothing is swept.

    Raises:
        ConfigError: an override that cannot be read.
    """
    hydra = loader(extra)
    try:
        parsed = OverridesParser.create(config_loader=hydra).parse_overrides(list(overrides))
        jobs = BasicSweeper.split_arguments([o for o in parsed if not o.is_hydra_override()], None)[0]
    except HydraException as error:
        raise ConfigError(composition_problems(hydra, CONFIG_NAME, list(overrides), error)) from error
    of_hydra = [str(o.input_line) for o in parsed if o.is_hydra_override()]
    return [of_hydra + job for job in jobs]


def _resolved(tree: DictConfig) -> dict[str, Any]:
    """Plain values; a key that is still needed stays "???"."""
    try:
        values = OmegaConf.to_container(tree, resolve=True, throw_on_missing=False)
    except InterpolationToMissingValueError as error:
        raise ConfigError(
            [f"{error.full_key} is computed from a value that is missing: {_first_line(error)}"]
        ) from error
    except InterpolationKeyError as error:
        raise ConfigError([f"{error.full_key} refers to a key that does not exist: {_first_line(error)}"]) from error
    except OmegaConfBaseException as error:
        raise ConfigError([f"{error.full_key} cannot be computed: {_first_line(error)}"]) from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return str(scrub({"text": text})["text"])
