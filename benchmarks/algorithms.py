"""Every algorithm preset at equal environment turns, and which published orderings that reproduces.

    python benchmarks/algorithms.py            everything: about half an hour on two idle cores
    python benchmarks/algorithms.py --quick    three presets, a minute, no conclusions

Twelve presets that differ in kind play two environments with 5 seeds, the others one environment with 2. Each finished
run is a file in the output folder, named by its settings and budget, and a rerun takes it from there; failed runs are
tried again. After a change of code take another folder. The tables are printed, and written to tables.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # else the name `algorithms` would be this file

from benchmarks.algorithms_plan import Run, full, quick
from benchmarks.algorithms_tables import Result, interval, tables
from evo_hpo.config.errors import UserError
from evo_hpo.runtime.folder import write_json, write_text

if TYPE_CHECKING:
    from evo_hpo.runtime.training import Training
    from evo_hpo.tracking.core import Tracker


def prepared(run: Run, *trackers: Tracker) -> Training:
    """A run that was never updated yet.

    Raises:
        UserError: the settings do not go together.
    """
    from evo_hpo.config.build import build
    from evo_hpo.config.compose import compose
    from evo_hpo.runtime.setup import population_of, processes_of
    from evo_hpo.runtime.training import Training
    from evo_hpo.tracking.core import Trackers

    composed = compose(run.settings)
    config = build(composed.values, composed.provenance, composed.choices)
    processes = processes_of(config)
    population, told = population_of(config, processes.device), Trackers(list(trackers))
    training = Training(config, population, processes, told, lambda training: None)
    training.prepare()
    training.take(training.progress.values)
    return training


def measure(run: Run) -> dict[str, Any]:
    """Train and measure one run in this process.

    Raises:
        UserError: the settings do not go together, or an episode of a member could not be played.
    """
    training = prepared(run)
    progress, started = training.progress, time.process_time()
    while progress.environment_turns < run.turns * run.seeds:
        training.update()
    seconds = time.process_time() - started  # of this process, whatever else the machine does
    return result_of(run, training, seconds)


def result_of(run: Run, training: Training, seconds: float) -> dict[str, Any]:
    """What a trained run leaves, with its success on the final tasks.

    Raises:
        UserError: an episode of a member could not be played.
    """
    progress = training.progress
    finals, _ = training.player.fitness(training.tasks.of("final", run.final_tasks), 0)
    if unplayed := [member for member, final in enumerate(finals) if final.episodes == 0]:
        raise UserError(f"not one final episode of members {unplayed} could be played")
    return {
        "env": run.env,
        "overrides": list(run.overrides),
        "success": [final.rate for final in finals],
        "episodes": [final.episodes for final in finals],
        "held_out": training.tasks.held_out_by,
        "updates": progress.update,
        "turns": progress.environment_turns / run.seeds,
        "tokens": progress.policy_tokens / run.seeds,
        "seconds": seconds,
        "not_finite": sorted(int(member) for member in progress.condemned),
        "alarms": dict(Counter(alarm["kind"] for alarm in progress.alarms)),
    }


def in_process(run: Run, script: Path) -> Result:
    """What `script --child` measures in a fresh process with one thread; the reason as a sentence where it fails."""
    fields = json.dumps([run.env, list(run.overrides), run.seeds, run.turns, run.final_tasks])
    command = [sys.executable, str(script.resolve()), "--child", fields]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=one_thread)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"the process ended with {done.returncode} and said nothing"]
        return said[-1].strip()
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def child(fields: str, measured: Callable[[Run], dict[str, Any]] = measure) -> None:
    """Print what is measured of one run as the last line, for `in_process`."""
    env, overrides, seeds, turns, final_tasks = json.loads(fields)
    try:
        print(json.dumps(measured(Run(env, tuple(overrides), seeds, turns, final_tasks)), allow_nan=False))
    except UserError as error:
        sys.exit(" ".join(str(error).split()))


def work(runs: Iterable[Run], folder: Path, jobs: int, script: Path = Path(__file__)) -> dict[Run, Result]:
    """The result of every run: from the folder where it is there, else from a process of its own, `jobs` at a time.

    Args:
        script: measures a run when it is called with `--child`, as `child` does.
    """
    results: dict[Run, Result] = {}
    same: dict[str, list[Run]] = {}  # file -> the runs that are this one
    for run in dict.fromkeys(runs):
        try:
            same.setdefault(run.file_name, []).append(run)
        except UserError as error:
            results[run] = " ".join(str(error).split())
    todo = []
    for name, alike in same.items():
        if (folder / name).exists():
            results.update(dict.fromkeys(alike, json.loads((folder / name).read_text(encoding="utf-8"))))
        else:
            todo.append(name)
    print(f"{len(same)} runs, {len(same) - len(todo)} of them there already in {folder}", flush=True)
    started, amount, left = time.monotonic(), 0, sum(_amount(same[name][0]) for name in todo)
    pool = ThreadPoolExecutor(jobs)
    try:
        futures: dict[Future[Result], str] = {pool.submit(in_process, same[name][0], script): name for name in todo}
        for number, future in enumerate(as_completed(futures), 1):
            name = futures[future]
            result = future.result()
            if isinstance(result, dict):
                write_json(folder / name, result)
            results.update(dict.fromkeys(same[name], result))
            amount, left = amount + _amount(same[name][0]), left - _amount(same[name][0])
            minutes = (time.monotonic() - started) * left / amount / 60
            print(f"[{number}/{len(todo)}] {_line(same[name][0], result)}; about {minutes:.0f} min left", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _amount(run: Run) -> int:
    """A run's work in turns, for the time that is left."""
    return run.seeds * run.turns + run.seeds * run.final_tasks


def _line(run: Run, result: Result) -> str:
    name = f"{run.env} {' '.join(run.overrides) if run.turns else 'base'}"
    if isinstance(result, str):
        return f"{name}: failed, {result}"
    cost = f"{result['turns']:,.0f} turns a member, {result['seconds']:.0f} s"
    return f"{name}: success {interval(result['success'])[0]:.3f}, {cost}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/benchmark_algorithms"), help="folder of the results")
    parser.add_argument("--turns", type=int, help="training turns per member (default 6000; 20 with --quick)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each a process with one thread")
    parser.add_argument("--quick", action="store_true", help="three presets, one environment, two seeds")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    plan = (quick if arguments.quick else full)(arguments.turns)
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = tables(plan, work(plan.runs(), arguments.output, arguments.jobs))
    write_text(arguments.output / "tables.md", text)
    print(f"\n{text}\nwritten to {arguments.output / 'tables.md'}")


if __name__ == "__main__":
    main()
