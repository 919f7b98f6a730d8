"""Where each value of a run came from: which YAML file, or which override."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from evo_hpo.config import paths
from evo_hpo.tracking.secrets import scrub


class TracingLoader(ConfigLoaderImpl):
    """Hydra's config loader, which also notes what each file said before the next one overruled it."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path=config_search_path)
        self.files: list[tuple[str, dict[Any, Any]]] = []  # of the last composition: (file, values), first to last

    def load_configuration(self, *arguments: Any, **named: Any) -> DictConfig:
        self.files = []
        return super().load_configuration(*arguments, **named)

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        loaded = super()._load_single_config(default, repo)
        path = default.config_path or ""
        if isinstance(loaded.config, DictConfig) and path.partition("/")[0] != "hydra":
            # A copy, because Hydra merges the files that follow into this very tree.
            values = OmegaConf.to_container(loaded.config, resolve=False)
            assert isinstance(values, dict)
            self.files.append((_file(loaded.path, path), values))
        return loaded

    def sources(self, overrides: Sequence[str]) -> dict[str, str]:
        """Dotted key of every leaf -> `conf/algorithm/grpo.yaml` or `override algorithm.kl.coef=0.1`.

        A key whose value refers to another key also names that reference.

        Args:
            overrides: those of the last composition.
        """
        found: dict[str, str] = {}
        for file, values in self.files:
            _record(found, values, file)
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            if not self.repository.group_exists(override.key_or_group):
                _record_override(found, override)
        return found


def source_of(provenance: Mapping[str, str], key: str) -> str | None:
    """Where `key` was written: its own source, else that of the nearest key above it, else of the first below it."""
    above = key
    while above:
        if above in provenance:
            return provenance[above]
        above = above.rpartition(".")[0]
    return next((source for leaf, source in provenance.items() if leaf.startswith(f"{key}.")), None)


def shown(override: Override | str) -> str:
    """The override as it may be printed: without secrets, and without the content of mappings, which may hold some."""
    line = override if isinstance(override, str) else str(override.input_line)
    key, _, value = line.partition("=")
    if "{" in value and not value.startswith("${"):
        return f"{key}={{…}}"
    return str(scrub({"override": line})["override"])


def complete(provenance: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, str]:
    """The source of every leaf of the resolved `values`, those that came through a reference included."""
    return {key: source_of(provenance, key) or "unknown" for key, _ in leaves(values)}


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything that is not a non-empty mapping; a list is one value."""
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted, value


def write(folder: Path, resolved: Mapping[str, Any], provenance: Mapping[str, str]) -> None:
    """Write config.yaml (resolved) and provenance.yaml into the run folder, both without secrets."""
    for name, content in (("config.yaml", resolved), ("provenance.yaml", complete(provenance, resolved))):
        text = yaml.safe_dump(scrub(content), sort_keys=False, allow_unicode=True, width=120)
        temporary = folder / f".{name}.new"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, folder / name)


def _record(sources: dict[str, str], values: Mapping[Any, Any], source: str) -> None:
    for key, value in leaves({str(k): v for k, v in values.items()}):
        if value == {} and _below(sources, key):
            continue  # it is merged, and so changes nothing
        _forget(sources, key)
        refers = isinstance(value, str) and "${" in value
        sources[key] = f"{source} ({value})" if refers else source


def _record_override(sources: dict[str, str], override: Override) -> None:
    line, key = shown(override), override.key_or_group
    if override.is_delete():
        _forget(sources, key)
        sources.pop(key, None)
        return
    value = override.value()
    content: Any = OmegaConf.to_container(OmegaConf.create(value)) if isinstance(value, dict) else value
    for leaf, inner in leaves({key: content}):
        if inner == {} and _below(sources, leaf):
            continue
        _forget(sources, leaf)
        sources[leaf] = f"override {line}"


def _below(sources: Mapping[str, str], key: str) -> list[str]:
    return [known for known in sources if known.startswith(f"{key}.")]


def _forget(sources: dict[str, str], key: str) -> None:
    """Drop what `key` replaces: the leaves below it, and a leaf above it."""
    for known in _below(sources, key):
        del sources[known]
    above = key.rpartition(".")[0]
    while above:
        sources.pop(above, None)
        above = above.rpartition(".")[0]


def _file(source: str, config_path: str) -> str:
    """A name that reads the same on every machine for our own files, and the path of anyone else's."""
    scheme, _, root = source.partition("://")
    name = f"{config_path.removesuffix('.yaml')}.yaml"
    if scheme == "sweeps":
        return f"sweeps/{name.removeprefix('sweep/')}"
    if scheme == "file" and Path(root) == paths.conf():
        return f"conf/{name}"
    return f"{root}/{name}" if scheme == "file" else f"{source}/{name}"
