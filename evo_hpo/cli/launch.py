"""Overrides -> a checked config -> a run. Hydra makes the folders, but none for a config that is refused."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from evo_hpo.cli.guard import guarded
from evo_hpo.config import paths, search
from evo_hpo.config.build import build
from evo_hpo.config.compose import CONFIG_NAME, Composed, compose, expand, of_job
from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import shown, write

FULL_ERROR = "HYDRA_FULL_ERROR"
BEFORE_TRAINING = ("config.yaml", "provenance.yaml", "run.lock")  # what a run folder holds before anything is recorded
MULTIRUN_COPY = "multirun.yaml"  # Hydra's dump of the overrides of a multirun, secrets included


def main(arguments: list[str]) -> int:
    """Run what `python launch.py <arguments>` asks for.

    Returns:
        0, or 2 where the config or a folder has to be changed; the reasons are on stderr.
    """
    full_errors = os.environ.get(FULL_ERROR) == "1" or "debug=on" in arguments
    return guarded(lambda: _launch(arguments), full_errors, quiet=_rank() != 0)


def _launch(arguments: list[str]) -> None:
    for what, do in {"resume": _resume, "replay": _replay, "controls": _controls}.items():
        named = [argument for argument in arguments if argument.startswith(f"{what}=")]
        if named:
            others = [argument for argument in arguments if argument not in named]
            return do(Path(named[-1].partition("=")[2]).expanduser(), others)
    options = get_args_parser().parse_intermixed_args(arguments)
    flags = [argument for argument in arguments if argument not in options.overrides]
    arguments = [*flags, *options.overrides]  # Hydra wants overrides in one piece
    if not (options.help or options.hydra_help or options.info or options.shell_completion):
        _check(options)
    if _rank() != 0:
        return _follow(options)
    # Hydra would print the errors of the job itself, with half a traceback.
    os.environ[FULL_ERROR] = "1"
    sys.argv = [sys.argv[0], *arguments]
    error: Exception | None = None
    try:
        hydra.main(version_base="1.3", config_path=str(paths.conf()), config_name=CONFIG_NAME)(job)()
    except Failed as failed:
        error = failed.error
    except OSError as reason:  # of Hydra, which makes the folder
        error = UserError(f"no run folder can be made ({reason}); choose another place with run_dir=<folder>")
    if error is not None:
        raise error


class Failed(BaseException):
    """Carries an error past Hydra, which would print all overrides with it, secrets included."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def job(tree: DictConfig) -> dict[str, Any]:
    """One run, in the folder that Hydra made for it. Returns the content of its result.json.

    Raises:
        Failed: with whatever the run raised.
    """
    try:
        return _job(tree)
    except Exception as error:
        raise Failed(error) from error


def _job(tree: DictConfig) -> dict[str, Any]:
    search.register()
    hydra_config = HydraConfig.get()
    folder = Path(str(hydra_config.runtime.output_dir))
    overrides = [str(line) for line in hydra_config.overrides.task]
    if hydra_config.mode == RunMode.MULTIRUN:
        (Path(str(hydra_config.sweep.dir)) / MULTIRUN_COPY).unlink(missing_ok=True)
        print(f"job {hydra_config.job.num}: {' '.join(map(shown, overrides))}", flush=True)
    composed = of_job(tree, overrides, folder, _extra_of(hydra_config))
    config = build(composed.values, composed.provenance, composed.choices)
    if (folder / "config.yaml").exists():
        raise UserError(f"{folder} holds a run already; write resume={folder}, or choose another hydra.run.dir")
    try:
        write(folder, composed.values, composed.provenance)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); choose another place with run_dir=…"
        ) from error
    from evo_hpo.runtime.run import run

    try:
        result = run(config, composed.values, folder)
    except UserError:
        _remove_empty(folder)
        raise
    _asked_controls(folder)
    return result


def _asked_controls(folder: Path) -> None:
    """What the finished run in `folder` asked for with `sweep.controls`."""
    from evo_hpo.runtime.controls import asked_in, run_controls

    if asked := asked_in(folder):
        print(run_controls(asked))


def _remove_empty(folder: Path) -> None:
    """Remove the folder of a run that was refused before it recorded anything, so that nothing half-made is left."""
    from evo_hpo.runtime.folder import FolderError, RunFolder

    try:
        mine = RunFolder(folder, free_mb=0)
    except FolderError:
        return  # another process is at work in it, or nothing can be removed anyway
    if all(path.name in BEFORE_TRAINING for path in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)
    mine.release()


def _check(options: Namespace) -> None:
    """Refuse before Hydra makes a folder; of a multirun, every job."""
    extra = Path(options.config_dir) if options.config_dir else None
    if extra is not None and not extra.is_dir():
        raise UserError(f"--config-dir {extra} is no folder")
    if options.multirun and _rank_count() > 1:
        raise UserError("-m starts several runs and accelerate launch several processes of one; start each run alone")
    foreign_sweeper = any(line.startswith("hydra/sweeper=") for line in options.overrides)
    if options.multirun and foreign_sweeper:
        return  # which values it will try is not known yet; every job is checked when it starts
    jobs = expand(options.overrides, extra) if options.multirun else [options.overrides]
    for overrides in jobs:
        composed = compose(overrides, extra)
        if options.cfg is None:
            config = build(composed.values, composed.provenance, composed.choices)
            if config.sweep.controls:
                _require_one_process("sweep.controls")
            _check_writable(composed.folder)


def _check_writable(folder: Path) -> None:
    """Raise where the run folder could not be made."""
    try:
        existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    except OSError as error:
        raise UserError(
            f"no run folder can be made ({error.strerror}); choose another place with run_dir=<folder>"
        ) from error
    if not existing.is_dir():
        raise UserError(f"no run folder can be made: {existing} is a file; choose another place with run_dir=<folder>")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"no run folder can be made: {existing} is not writable; choose another with run_dir=<folder>")


def _follow(options: Namespace) -> None:
    """A further process of one run: it makes nothing, and learns the folder from the first."""
    composed: Composed = compose(options.overrides, Path(options.config_dir) if options.config_dir else None)
    config = build(composed.values, composed.provenance, composed.choices)
    from evo_hpo.runtime.run import run

    run(config, composed.values, composed.folder)


def _resume(run: Path, overrides: list[str]) -> None:
    _require_run("resume", run, overrides)
    from evo_hpo.runtime.resuming import asked_for
    from evo_hpo.runtime.run import resume

    if asked_for(run, overrides).config.sweep.controls:
        _require_one_process("sweep.controls")
    resume(run, overrides)
    _asked_controls(run)


def _replay(run: Path, overrides: list[str]) -> None:
    _require_run("replay", run, overrides)
    _require_one_process("replay")
    from evo_hpo.runtime.replaying import asked_for
    from evo_hpo.runtime.run import run as start

    asked = asked_for(run, overrides)
    asked.folder.mkdir(parents=True)
    write(asked.folder, asked.resolved, asked.provenance)
    start(asked.config, asked.resolved, asked.folder)


def _controls(run: Path, overrides: list[str]) -> None:
    _require_run("controls", run, overrides)
    _require_one_process("controls")
    from evo_hpo.runtime.controls import asked_for, run_controls

    print(run_controls(asked_for(run, overrides)))


def _require_run(what: str, run: Path, overrides: list[str]) -> None:
    if not (run / "config.yaml").is_file():
        raise UserError(f"{what}={run}: there is no run there (no config.yaml); name a folder below run_dir")
    if flags := [line for line in overrides if line.startswith("-")]:
        raise UserError(f"{what}= goes on from one run and takes no {flags[0]}; leave it out")


def _require_one_process(what: str) -> None:
    if _rank_count() > 1:
        raise UserError(f"{what}= works in one process; leave accelerate launch out")


def _extra_of(hydra_config: Any) -> Path | None:
    """The folder that --config-dir named."""
    for source in hydra_config.runtime.config_sources:
        if source.provider == "command-line":
            return Path(source.path)
    return None


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _rank_count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
