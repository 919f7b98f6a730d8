"""`doctor`: can this machine run, and with what? Versions, devices, threads, optional parts, a writable folder."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from evo_hpo.config import paths
from evo_hpo.tracking.secrets import is_secret_name

DISTRIBUTION = "evo-hpo"


def print_diagnosis() -> bool:
    """Print what was found; true where nothing is missing that a default run needs."""
    fine = True
    for title, lines in (
        ("versions", _versions()),
        ("devices", _devices()),
        ("optional parts", _optional()),
        ("files", _files()),
    ):
        print(title)
        for good, line in lines:
            fine = fine and good
            print(f"  {line}" if good else f"! {line}")
    print("all a default run needs is here" if fine else "lines marked ! have to be put right first")
    return fine


def requirements() -> list[Requirement]:
    """What the package asks for, extras included: of the installed package, else of the checkout."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        project = tomllib.loads((paths.PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        lines = list(project["dependencies"])
        for extra, wanted in project["optional-dependencies"].items():
            lines += [f'{line}; extra == "{extra}"' for line in wanted]
    return [Requirement(line) for line in lines]


def _versions() -> Iterator[tuple[bool, str]]:
    yield sys.version_info >= (3, 11), f"python {platform.python_version()} on {platform.platform(terse=True)}"
    for requirement in requirements():
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield found(requirement)


def found(requirement: Requirement) -> tuple[bool, str]:
    """Whether what is installed satisfies `requirement`, and a line that says so or says what to do."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False, f"{requirement.name} is not installed; it needs {requirement.specifier or 'any version'}"
    if not requirement.specifier.contains(version, prereleases=True):
        return False, f"{requirement.name} {version} does not do; install {requirement.name}{requirement.specifier}"
    return True, f"{requirement.name} {version}"


def _devices() -> Iterator[tuple[bool, str]]:
    try:
        import torch
    except ImportError as error:
        yield False, f"torch cannot be imported: {error}"
        return
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield True, f"cpu: {available} cores for this process, {torch.get_num_threads()} threads for tensors"
    if not torch.cuda.is_available():
        yield True, "cuda: none, so device=auto means cpu"
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        yield True, f"cuda:{index}: {card.name}, {card.total_memory / 2**30:.0f} GiB"


def _optional() -> Iterator[tuple[bool, str]]:
    extras: dict[str, list[str]] = {}
    for requirement in requirements():
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            for extra in _extras_with(requirement):
                extras.setdefault(extra, []).append(requirement.name)
    for extra, names in sorted(extras.items()):
        absent = [name for name in names if not _installed(name)]
        state = f"not installed ({', '.join(absent)}); pip install 'evo-hpo[{extra}]'" if absent else "installed"
        yield True, f"{extra}: {state}"
    key = any(is_secret_name(name) and name.startswith("WANDB") and value for name, value in os.environ.items())
    meaning = "a key is set, so auto means online" if key else "no key is set, so auto means offline"
    yield True, f"tracker.wandb: {meaning}"


def _extras_with(requirement: Requirement) -> list[str]:
    """The extras that bring `requirement`."""
    words = str(requirement.marker).replace("'", '"').split('"')
    return [word for before, word in zip(words, words[1:], strict=False) if before.rstrip().endswith("extra ==")]


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _files() -> Iterator[tuple[bool, str]]:
    for folder in (paths.conf, paths.sweeps):
        try:
            yield True, f"{folder.__name__}: {folder()}"
        except FileNotFoundError as error:
            yield False, str(error)
    try:
        with tempfile.NamedTemporaryFile(dir=Path.cwd()):
            yield True, f"run folders can be made below {Path.cwd()}"
    except OSError as error:
        yield False, f"{Path.cwd()} is not writable ({error.strerror}); go elsewhere, or write run_dir=<folder>"
