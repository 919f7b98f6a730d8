"""Rewards, each with four algorithms: success at equal environment turns, learning curves, and over-optimisation.

    python benchmarks/rewards.py            everything: about half an hour on one idle core
    python benchmarks/rewards.py --quick    two rewards, one algorithm, under a minute, no conclusions

Per environment a progress model and a reward model are trained first, on episodes of the base. Each finished run is a
file in the output folder, named by its settings and budget, and a rerun takes it from there; failed runs are tried
again. After a change of code take another folder. The tables are printed, and written to tables.md.

RULER and the other judges are left out: they need a language model that answers, and none comes with the package.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # else the name `algorithms` would be a file here

from benchmarks.algorithms import child, prepared, result_of, work
from benchmarks.algorithms_plan import ENVIRONMENTS, Run
from benchmarks.rewards_plan import POINTS, Plan, full, quick
from benchmarks.rewards_tables import tables
from evo_hpo.runtime.folder import write_json, write_text
from evo_hpo.tracking.core import Tracker, UpdateRecord

ROOT = Path(__file__).resolve().parent.parent
RECENT = 5  # updates over which the divergence at the end is a mean


class Divergence(Tracker):
    """Remembers how far each member is from the reference, where the run measures it."""

    def __init__(self) -> None:
        self.kl: list[list[float]] = []  # of each update, by member

    def update(self, record: UpdateRecord) -> None:
        self.kl.append([member.metrics.get("kl", math.nan) for member in record.members])

    def final(self) -> list[float] | None:
        """[N] mean of the last updates; None where it is not measured."""
        means = [statistics.fmean(column) for column in zip(*self.kl[-RECENT:], strict=True)]
        return means if means and all(map(math.isfinite, means)) else None


def measure(run: Run) -> dict[str, Any]:
    """Train one run in this process, measured at the start and at `POINTS` equal distances up to its end.

    The points are measured on the common fitness tasks, with the same noise: success, and what the run's own reward
    pays for these episodes. The result at the end is success on the final tasks, as in `algorithms.measure`.

    Raises:
        UserError: the settings do not go together, or an episode of a member could not be played.
    """
    divergence = Divergence()
    training = prepared(run, divergence)
    progress, points, seconds = training.progress, [point(training)], 0.0
    for number in range(1, POINTS + 1) if run.turns else ():
        started = time.process_time()
        while progress.environment_turns < run.turns * run.seeds * number / POINTS:
            training.update()
        seconds += time.process_time() - started
        points.append(point(training))
    return result_of(run, training, seconds) | {"points": points, "kl": divergence.final()}


def point(training: Any) -> dict[str, Any]:
    """Turns played so far per member, and of each member success and mean reward on the common fitness tasks."""
    from evo_hpo.learner.scoring import score

    config, members = training.config, training.policy.members
    successes, episodes = training.player.fitness(training.tasks.of("fitness", config.evaluation.tasks), 0)
    scored = score(episodes, config.reward, config.granularity)
    paid: list[list[float]] = [[] for _ in range(members)]
    for episode, rewards in zip(scored.episodes, scored.turn_rewards, strict=True):
        paid[episode.member].append(math.fsum(rewards))
    return {
        "turns": training.progress.environment_turns / members,
        "success": [one.rate for one in successes],
        "reward": [statistics.fmean(mine) for mine in paid],
    }


def trained(plan: Plan, folder: Path) -> dict[tuple[str, str], dict[str, Any] | str]:
    """The scorers that the plan needs: those that lie in `folder`, and the others trained; what is known about each."""
    known: dict[tuple[str, str], dict[str, Any] | str] = {}
    for env, kind in plan.needed():
        target = folder / env / kind
        try:
            if not (target / "scorer.json").exists():
                _train(plan, env, kind, target)
            known[env, kind] = json.loads((target / "scorer.json").read_text(encoding="utf-8"))
            line = "is there"
        except RuntimeError as error:
            known[env, kind] = line = f"failed, {error}"
        print(f"{kind} of {env}: {line}", flush=True)
    return known


def _train(plan: Plan, env: str, kind: str, target: Path) -> None:
    """Train one scorer in a scratch folder and move it to `target` when it is complete.

    Raises:
        RuntimeError: a command failed; the message is its last line.
    """
    scratch = target.with_name(f".{kind}")
    shutil.rmtree(scratch, ignore_errors=True)
    pairs = scratch / "pairs.jsonl"
    launch = [sys.executable, str(ROOT / "launch.py")]
    if kind == "reward_model":
        _command([*launch, *plan.scorers.base(env), f"run_dir={scratch / 'base'}"])
        [played] = (scratch / "base").iterdir()
        prefs = ["prefs", str(played), f"--to={pairs}", "--per-group=4"]
        _command([sys.executable, "-m", "evo_hpo", *prefs])
    _command([*launch, *plan.scorers.training(env, kind, pairs), f"run_dir={scratch / 'run'}"])
    [run] = (scratch / "run").iterdir()
    about = json.loads((run / "best" / "scorer.json").read_text(encoding="utf-8"))
    amount = len(pairs.read_text(encoding="utf-8").splitlines()) if kind == "reward_model" else None
    turns = json.loads((run / "result.json").read_text(encoding="utf-8"))["environment_turns"]
    write_json(run / "best" / "scorer.json", about | {"pairs": amount, "turns": turns})
    (run / "best").rename(target)
    shutil.rmtree(scratch)


def _command(command: list[str]) -> None:
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=one_thread)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode} and said nothing"]
        raise RuntimeError(said[-1].strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/benchmark_rewards"), help="folder of the results")
    parser.add_argument("--turns", type=int, help="training turns per member (default 3000; 60 with --quick)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each a process with one thread")
    parser.add_argument("--env", choices=ENVIRONMENTS, action="append", default=[], help="only there; may be repeated")
    parser.add_argument("--quick", action="store_true", help="two rewards, one algorithm and environment, two seeds")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, measure)
        return
    plan, output = (quick if arguments.quick else full)(arguments.turns, arguments.env), arguments.output.resolve()
    scorers = output / ("scorers_quick" if arguments.quick else "scorers")
    scorers.mkdir(parents=True, exist_ok=True)
    about = trained(plan, scorers)
    runs = [plan.run(choice, algorithm, env, scorers) for env, choice, algorithm in plan.cells()]
    runs += [plan.base(env) for env in plan.environments]
    text = tables(plan, work(runs, output, arguments.jobs, Path(__file__)), about, scorers)
    write_text(output / "tables.md", text)
    print(f"\n{text}\nwritten to {output / 'tables.md'}")


if __name__ == "__main__":
    main()
