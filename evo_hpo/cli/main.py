"""The commands of `evo-hpo` and `python -m evo_hpo`."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from evo_hpo.cli.guard import guarded
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config
from evo_hpo.config.species import recorded_spaces

DESCRIPTION = """Populations of LoRA agents that learn by multi-turn RL while their hyperparameters evolve.

`evo-hpo run [key=value …]` is the same as `python launch.py [key=value …]`."""


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for; the exit code is 0, 1 (doctor found something) or 2 (wrong input)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"]:  # its overrides and flags are Hydra's
        from evo_hpo.cli.launch import main as launch

        return launch(arguments[1:])
    options = parser().parse_args(arguments)
    if options.command == "doctor":
        from evo_hpo.cli.doctor import print_diagnosis

        return 0 if print_diagnosis() else 1
    return guarded(lambda: _do(options))


def parser() -> argparse.ArgumentParser:
    """The argument parser of all commands."""
    top = argparse.ArgumentParser(
        prog="evo-hpo", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("run", help="compose, check and run: evo-hpo run algorithm=ppo seed=1", add_help=False)

    listing = commands.add_parser("list", help="config groups, their options, search spaces")
    listing.add_argument("group", nargs="?", help="one group, with more about each option")

    commands.add_parser("doctor", help="versions, devices, optional parts, a writable folder")

    report = commands.add_parser("report", help="write report.html of a run again")
    report.add_argument("run", type=Path, help="run folder")

    compare = commands.add_parser("compare", help="runs side by side at equal budget, as a table and as HTML")
    compare.add_argument("runs", nargs="+", type=Path, metavar="run", help="folders of runs, or of a multirun")
    compare.add_argument(
        "--budget",
        default="policy_tokens",
        choices=["policy_tokens", "environment_turns", "updates", "seconds"],
        help="what counts as equal (default policy_tokens)",
    )
    compare.add_argument("--to", type=Path, default=Path("comparison.html"), help="page (default comparison.html)")

    study = commands.add_parser("study", help="write a run as an Optuna study for optuna-dashboard")
    study.add_argument("run", type=Path, help="run folder")
    study.add_argument("--to", type=Path, required=True, help="SQLite file to write; it must not exist yet")

    export = commands.add_parser("export", help="write a member as a peft adapter folder")
    export.add_argument("run", type=Path, help="run folder")
    export.add_argument("--member", default="best", help="best (the default) or the number of a member")
    export.add_argument("--to", type=Path, required=True, help="folder to write; it must not exist yet")

    play = commands.add_parser("play", help="watch an agent act, turn by turn")
    play.add_argument("run", help="run folder, or `base` for the model before training")
    play.add_argument("overrides", nargs="*", help="with base: overrides as for run, for example env=guess_number")
    play.add_argument("--member", default="best", help="best (the default) or the number of a member")
    play.add_argument("--task", type=int, help="seed of the first task; without it, tasks never trained on")
    play.add_argument("--episodes", type=int, default=1, help="episodes to play (default 1)")
    play.add_argument("--temperature", type=float, help="sampling temperature; without it, that of evaluation")

    prefs = commands.add_parser("prefs", help="write preference pairs from the episodes of runs")
    prefs.add_argument("runs", nargs="+", type=Path, metavar="run", help="run folder")
    prefs.add_argument("--to", type=Path, required=True, help="JSONL file to write; it must not exist yet")
    prefs.add_argument(
        "--split", choices=["train", "fitness", "all"], default="train",
        help="episodes of training (the default), of measuring fitness, or both",
    )  # fmt: skip
    prefs.add_argument("--margin", type=float, default=0.0, help="scores must differ by more than this (default 0)")
    prefs.add_argument("--per-group", type=int, default=1, help="pairs of a group at most (default 1)")
    return top


def _do(options: argparse.Namespace) -> None:
    if options.command == "list":
        from evo_hpo.cli.listing import print_list

        print_list(options.group)
    elif options.command == "report":
        run = _run_folder(options.run)
        from evo_hpo.tracking.report import write_report

        print(write_report(run))
    elif options.command == "compare":
        from evo_hpo.tracking.compare import arms_of, print_table, write_comparison

        arms = arms_of(options.runs)
        print_table(arms, options.budget)
        print(write_comparison(arms, options.budget, options.to))
    elif options.command == "study":
        _study(_run_folder(options.run), options.to)
    elif options.command == "export":
        run, member = _run_folder(options.run), _member(options.member)
        if options.to.exists():
            raise UserError(f"--to {options.to} exists already; name a folder that does not")
        from evo_hpo.runtime.export import export_member

        export_member(run, member, options.to)
        print(f"wrote {options.to}")
    elif options.command == "play":
        _play(options)
    elif options.command == "prefs":
        _prefs(options)


def _study(run: Path, target: Path) -> None:
    from evo_hpo.config.build import build
    from evo_hpo.runtime.resuming import stored_config
    from evo_hpo.tracking.optuna import export_study

    config = build(stored_config(run))
    trials = export_study(run, target, recorded_spaces(config), config.name)
    artifacts = target.with_name(f"{target.stem}_artifacts")
    more = f" --artifact-dir {artifacts}" if artifacts.is_dir() else ""
    print(f"wrote {trials} trials; look at them with `optuna-dashboard sqlite:///{target}{more}`")


def _play(options: argparse.Namespace) -> None:
    if options.episodes < 1:
        raise UserError(f"--episodes is {options.episodes}; write 1 or more")
    if options.temperature is not None and options.temperature <= 0:
        raise UserError(f"--temperature is {options.temperature:g}; write a number above 0")
    if options.run == "base":
        from evo_hpo.config.build import build
        from evo_hpo.config.compose import compose

        composed = compose(options.overrides)
        source: Config | Path = build(composed.values, composed.provenance, composed.choices)
    else:
        source = _run_folder(Path(options.run))
        if options.overrides:
            raise UserError(f"a run keeps its own config, so '{options.overrides[0]}' does nothing; leave it out")
    member = _member(options.member)
    from evo_hpo.runtime.play import play

    play(source, member, options.task, options.episodes, options.temperature)


def _prefs(options: argparse.Namespace) -> None:
    if not 0 <= options.margin < math.inf:
        raise UserError(f"--margin is {options.margin:g}; write a number from 0")
    if options.per_group < 1:
        raise UserError(f"--per-group is {options.per_group}; write 1 or more")
    runs = [_run_folder(run) for run in options.runs]
    from evo_hpo.runtime.prefs import build_pairs

    count = build_pairs(runs, options.to, options.split, options.margin, options.per_group)
    print(f"wrote {count} pairs to {options.to}")


def _run_folder(folder: Path) -> Path:
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder} is no run folder (no config.yaml in it); run folders are made below runs/")
    return folder


def _member(name: str) -> str:
    if name != "best" and not name.isdecimal():
        raise UserError(f"--member is '{name}'; write best, or the number of a member")
    return name
