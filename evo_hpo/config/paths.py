"""Where the YAML files are: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def conf() -> Path:
    """Folder of the config groups."""
    return _data_folder("conf")


def sweeps() -> Path:
    """Folder of the population sweeps."""
    return _data_folder("sweeps")


def _data_folder(name: str) -> Path:
    # The installed place comes first: beside an installed package lies all of site-packages.
    for folder in (PACKAGE / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the folder {name}/ is neither in {PACKAGE} nor beside it; install evo-hpo again")
