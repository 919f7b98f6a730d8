"""Ways to search for hyperparameters at equal policy tokens: gated selection against what it has to beat.

    python benchmarks/evolution.py            everything: under two hours on two cores
    python benchmarks/evolution.py --quick    two seeds, shorter runs, two trials of TPE: under half an hour

GRPO trains FrozenLake and guess-the-number from the shipped base, over the default search space. Gated and truncation
selection, independent members and successive halving train a population at once; Optuna's TPE trains one member after
another. The first seed of gated selection also gets its controls (`--no-controls` leaves them out): selection without
mutation, mutation without selection, and one member with all the tokens. Each run is a folder in the output folder,
named by its settings; a rerun leaves finished runs alone and goes on with the others. After a change of code take
another folder. The tables are printed and written to tables.md, the curves to one HTML file per environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # else the name `algorithms` would be a file here

from benchmarks.algorithms_plan import ENVIRONMENTS
from benchmarks.evolution_plan import Plan, Run, full, quick
from benchmarks.evolution_tables import LABELS, Results, tables
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Control
from evo_hpo.runtime.controls import ARMS
from evo_hpo.runtime.folder import write_text
from evo_hpo.runtime.run import RESULT
from evo_hpo.tracking.compare import Arm, arms_of, write_comparison
from evo_hpo.tracking.compare.arms import RunSummary
from evo_hpo.tracking.compare.table import rows

CONTROLS: tuple[Control, ...] = ("selection_only", "mutation_only", "single")  # independent members are an arm


def train(settings: Sequence[str], folder: Path) -> None:
    """Run what `settings` say in this process, or go on with it where the folder is that of a run that was cut short.

    Raises:
        UserError: the settings do not go together, or the folder cannot be used.
    """
    from evo_hpo.config.build import build
    from evo_hpo.config.provenance import write
    from evo_hpo.runtime.run import resume, run

    if (folder / "config.yaml").is_file():
        resume(folder, [])
        return
    from evo_hpo.config.compose import compose

    composed = compose(list(settings))
    config = build(composed.values, composed.provenance, composed.choices)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, composed.values, composed.provenance)
    run(config, composed.values, folder)


def child(*arguments: str) -> str | None:
    """This file with `arguments` in a process with one thread; the reason as a sentence where it fails."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=one_thread)
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines() or [f"the process ended with {done.returncode} and said nothing"]
    return said[-1].strip()


def control(folder: Path) -> None:
    """Run the controls of the run in `folder` that are no arm of the benchmark, in this process."""
    from evo_hpo.runtime.controls import asked_for, run_controls

    run_controls(asked_for(folder, [f"arms={','.join(CONTROLS)}"]))


def work_controls(plan: Plan, results: Results, jobs: int) -> str:
    """Run the controls of the first seed of gated selection; their table as Markdown."""
    runs = [found for env in plan.environments if isinstance(found := results[plan.run(env, "gated", 0)], RunSummary)]
    with ThreadPoolExecutor(jobs) as pool:
        reasons = list(pool.map(lambda one: child("--control", str(one.folder)), runs))
    parts = []
    for one, reason in zip(runs, reasons, strict=True):
        print(f"controls of {one.folder.name}: {reason or 'done'}", flush=True)
        arms = [Arm("gated, seed 0", [one])]
        for name in CONTROLS:
            if (folder := one.folder / "controls" / name / RESULT).is_file():
                arms.append(Arm(ARMS[name], [summary(folder.parent)]))
        parts.append(f"## Controls of {one.folder.name.rpartition('-')[0]}\n\n{markdown(rows(arms, 'policy_tokens'))}")
    return "\n\n".join(parts)


def work(plan: Plan, output: Path, jobs: int) -> Results:
    """What every run left, or why it failed; `jobs` are trained at a time."""
    folders = {run: output / run.folder_name for run in plan.runs()}
    todo = [run for run, folder in folders.items() if not (folder / RESULT).is_file()]
    print(f"{len(folders)} runs, {len(folders) - len(todo)} of them there already in {output}", flush=True)
    failed: dict[Run, str] = {}
    started = time.monotonic()
    pool = ThreadPoolExecutor(jobs)
    try:
        futures: dict[Future[str | None], Run] = {
            pool.submit(child, "--child", json.dumps([run.settings, str(folders[run])])): run for run in todo
        }
        for number, future in enumerate(as_completed(futures), 1):
            run, reason = futures[future], future.result()
            if reason is not None:
                failed[run] = reason
            line = f"failed, {reason}" if reason else _line(summary(folders[run]))
            left = (time.monotonic() - started) / number * (len(todo) - number) / 60
            name = f"{run.env}, {LABELS[run.arm]}, seed {run.seed}"
            print(f"[{number}/{len(todo)}] {name}: {line}; about {left:.0f} min left", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return {run: failed[run] if run in failed else summary(folder) for run, folder in folders.items()}


def summary(folder: Path) -> RunSummary:
    """What the run in `folder` was worth, and what it cost."""
    return arms_of([folder])[0].runs[0]


def _line(run: RunSummary) -> str:
    return f"success {run.success or 0.0:.3f}, {run.total('policy_tokens'):,.0f} tokens, {run.total('seconds'):,.0f} s"


def markdown(table: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same columns as a Markdown table."""
    lines = ["| " + " | ".join(table[0]) + " |", "|" + "---|" * len(table[0])]
    return "\n".join([*lines, *("| " + " | ".join(row.values()) + " |" for row in table)])


def curves(plan: Plan, env: str, results: Results, output: Path) -> Path | None:
    """Write the page with fitness against tokens, turns and seconds; nothing where every run failed."""
    arms = []
    for arm in plan.seeds:
        runs = [found for run in plan.of(env, arm) if isinstance(found := results[run], RunSummary)]
        if runs:
            arms.append(Arm(LABELS[arm], runs))
    return write_comparison(arms, "policy_tokens", output / f"{env}.html") if arms else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/benchmark_evolution"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each a process with one thread")
    parser.add_argument("--env", choices=ENVIRONMENTS, action="append", default=[], help="only there; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer seeds, generations and trials")
    parser.add_argument("--no-controls", action="store_true", help="leave out the controls of gated selection")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--control", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child or arguments.control:
        try:
            if arguments.control:
                return control(Path(arguments.control))
            settings, folder = json.loads(arguments.child)
            return train(settings, Path(folder))
        except UserError as error:
            sys.exit(" ".join(str(error).split()))
    plan = (quick if arguments.quick else full)(tuple(arguments.env) or ENVIRONMENTS)
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    results = work(plan, output, arguments.jobs)
    text = tables(plan, results)
    if not arguments.no_controls:
        text = f"{text}\n{work_controls(plan, results, arguments.jobs)}\n"
    write_text(output / "tables.md", text)
    pages = [page for env in plan.environments if (page := curves(plan, env, results, output))]
    print(f"\n{text}\nwritten to {output / 'tables.md'}; curves: {', '.join(map(str, pages))}")


if __name__ == "__main__":
    main()
