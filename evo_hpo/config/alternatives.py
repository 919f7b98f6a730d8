"""Which options of a config group would do, for the second half of a sentence that refuses one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evo_hpo.config.components import Builder


def options(group: str) -> list[str]:
    """Names of the options of a config group, sorted."""
    from evo_hpo.config.compose import loader

    return list(loader().get_group_options(group, ObjectType.CONFIG))


def fitting_options(group: str, fits: Callable[[Any], bool]) -> list[str]:
    """Options of `group` whose component `fits`; those that cannot be built here are left out."""
    return [option for option, component in components(group).items() if fits(component)]


def components(group: str) -> dict[str, Any]:
    """Option -> its component, for every option of `group` that can be built here."""
    from evo_hpo.config.compose import loader

    result = {}
    for option in options(group):
        try:
            tree = loader().load_configuration(f"{group}/{option}", [], run_mode=RunMode.RUN)
            node = OmegaConf.to_container(OmegaConf.select(tree, group), resolve=True)
        except (HydraException, OmegaConfBaseException):
            continue
        component = Builder((), {}).component(node, group, None)
        if component is not None:
            result[option] = component
    return result
