"""Shows `sweeps/NAME.yaml` to Hydra as the option NAME of a config group `sweep`, so that `sweep=NAME` selects it."""

from __future__ import annotations

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin

from evo_hpo.config import paths

GROUP = "sweep"


class SweepsSource(FileConfigSource):
    """The folder of sweeps, seen as the one group `sweep`."""

    @staticmethod
    def scheme() -> str:
        return "sweeps"

    def load_config(self, config_path: str) -> ConfigResult:
        return super().load_config(_inside(config_path))

    def available(self) -> bool:
        return super().is_group("")

    def is_group(self, config_path: str) -> bool:
        return config_path.strip("/") in ("", GROUP)

    def is_config(self, config_path: str) -> bool:
        return config_path.startswith(f"{GROUP}/") and super().is_config(_inside(config_path))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path.strip("/") == GROUP:
            names = [file.stem for file in paths.sweeps().glob("*.yaml")]
            return sorted(names) if results_filter in (None, ObjectType.CONFIG) else []
        return [GROUP] if results_filter in (None, ObjectType.GROUP) else []


class SweepsSearchPath(SearchPathPlugin):
    """Puts `sweeps/` behind `conf/` on Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="sweeps", path=f"{SweepsSource.scheme()}://{paths.sweeps()}")


def register() -> None:
    """Tell Hydra about both classes; calling it again changes nothing."""
    Plugins.instance().register(SweepsSource)
    Plugins.instance().register(SweepsSearchPath)


def _inside(config_path: str) -> str:
    return config_path.removeprefix(f"{GROUP}/")
