"""Where each value of a run came from: which YAML file, or which override."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from evo_hpo.config import paths
from evo_hpo.tracking.secrets import scrub


def trace(loader: ConfigLoaderImpl, config_name: str, overrides: Sequence[str]) -> dict[str, str]:
    """Dotted key of every leaf -> `conf/algorithm/grpo.yaml` or `override algorithm.kl.coef=0.1`.

    The files are merged again, one by one, in the order that Hydra merges them in. A key whose value refers to
    another key also names that reference. The config must compose.
    """
    parsed, repository = loader._parse_overrides_and_create_caching_repo(config_name, list(overrides))
    chain = create_defaults_list(
        repo=repository, config_name=config_name, overrides_list=parsed, prepend_hydra=True, skip_missing=False
    )
    sources: dict[str, str] = {}
    for default in chain.defaults:
        path = default.config_path
        if path is None or path.split("/")[0] == "hydra":
            continue
        loaded = loader._load_single_config(default=default, repo=repository)
        if isinstance(loaded.config, DictConfig):
            values = OmegaConf.to_container(loaded.config, resolve=False)
            assert isinstance(values, dict)
            _record(sources, values, _file(loaded.path, path))
    for override in chain.config_overrides:
        _record_override(sources, override)
    return {key: source for key, source in sources.items() if key.split(".")[0] not in ("hydra", "defaults")}


def source_of(provenance: Mapping[str, str], key: str) -> str | None:
    """Where `key` was written: its own source, else that of the nearest key above it, else of the first below it."""
    above = key
    while above:
        if above in provenance:
            return provenance[above]
        above = above.rpartition(".")[0]
    return next((source for leaf, source in provenance.items() if leaf.startswith(f"{key}.")), None)


def shown(override: Override) -> str:
    """The override as it may be printed: without secrets, and without the content of mappings, which may hold some."""
    line = str(override.input_line or "")
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
    for leaf, _ in leaves({key: content}):
        _forget(sources, leaf)
        sources[leaf] = f"override {line}"


def _forget(sources: dict[str, str], key: str) -> None:
    """Drop what `key` replaces: the leaves below it, and a leaf above it."""
    for known in [known for known in sources if known.startswith(f"{key}.")]:
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
