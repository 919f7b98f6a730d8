"""One population of 8 against 8 runs of 1 that do the same work: wall clock and memory, rollout and update apart.

    python benchmarks/population.py            both sizes: 4 and 16 rows a member
    python benchmarks/population.py --rows 4   one of them

Both sides sample the same tokens (the noise belongs to the member), train on the same rows and end with the same
weights, which is checked. Start-up, and the first update of each side, are excluded. Every side runs in a process of
its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # else the name `algorithms` would be the benchmark beside this one
MEMBERS = 8


def measure(rows: int, slots: list[int], updates: int, threads: int, overrides: list[str]) -> dict[str, Any]:
    """Seconds per update of rollout and learner, median over `updates`, of the members in `slots`."""
    import torch

    from evo_hpo.config.build import build
    from evo_hpo.config.compose import compose
    from evo_hpo.evolution import hyperparameters
    from evo_hpo.learner.batch import build_batch
    from evo_hpo.learner.scoring import score
    from evo_hpo.runtime.processes import Processes
    from evo_hpo.runtime.setup import population_of
    from evo_hpo.runtime.training import Training
    from evo_hpo.tracking.core import Trackers

    torch.set_num_threads(threads)
    composed = compose(
        [f"rollout.tasks={rows // 4}", "rollout.group_size=4", "rollout.slots=16", "tracker=off", *overrides]
    )
    config = build(composed.values, composed.provenance, composed.choices)
    processes = Processes(cpu=config.device == "cpu" or not torch.cuda.is_available())
    policy = population_of(config, processes.device, len(slots), slots)
    training = Training(config, policy, processes, Trackers([]), lambda training: None)
    training.prepare()
    assert training.learner is not None
    algorithm = hyperparameters.bind(training.stage.algorithm, training.progress.values, processes.device)
    sampling = hyperparameters.sampling(config.rollout, training.progress.values, len(slots))
    rollout, update, tokens = [], [], 0
    for number in range(updates + 1):
        tasks = training.tasks.training(number, config.rollout.tasks)
        started = time.perf_counter()
        episodes = training.player.training(tasks, sampling, number, version=number)
        _finish(processes.device)
        rolled = time.perf_counter()
        scored = score(episodes, config.reward, config.granularity)
        outcomes = [s.outcome for s in scored.scores]
        batch = build_batch(scored.episodes, scored.turn_rewards, outcomes, len(slots), 0, processes.device)
        training.learner.update(batch, algorithm, sampling, number)
        _finish(processes.device)
        done = time.perf_counter()
        tokens += sum(episode.policy_tokens for episode in episodes)
        if number:
            rollout.append(rolled - started)
            update.append(done - rolled)
    return {
        "rollout": statistics.median(rollout),
        "update": statistics.median(update),
        "tokens": tokens,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "sums": policy.block.data.double().sum(1).tolist(),
    }


def _finish(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()


def in_process(rows: int, slots: list[int], updates: int, threads: int, overrides: list[str]) -> dict[str, Any]:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--child", json.dumps([rows, slots, updates, threads]), *overrides]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "30000", "PYTHONPATH": str(ROOT)}
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return result


def compare(rows: int, updates: int, threads: int, overrides: list[str]) -> None:
    together = in_process(rows, list(range(MEMBERS)), updates, threads, overrides)
    alone = [in_process(rows, [slot], updates, threads, overrides) for slot in range(MEMBERS)]
    assert sum(one["tokens"] for one in alone) == together["tokens"], "both sides must sample the same tokens"
    difference = max(abs(one["sums"][0] - total) for one, total in zip(alone, together["sums"], strict=True))
    assert difference < 0.1, f"both sides must end with the same weights; their sums differ by {difference}"
    print(f"\n{MEMBERS} members, {rows} rows each, {updates} updates, {threads} threads, {together['tokens']:,} tokens")
    print(f"{'':10}{'population':>12}{'8 runs':>12}{'ratio':>12}")
    for name in ("rollout", "update"):
        line(name, together[name], sum(one[name] for one in alone))
    line("whole", together["rollout"] + together["update"], sum(one["rollout"] + one["update"] for one in alone))
    one = statistics.fmean(run["peak_mb"] for run in alone)
    ratio = f"1/{MEMBERS * one / together['peak_mb']:.1f}"
    print(
        f"{'memory':10}{together['peak_mb']:>9.0f} MB{MEMBERS * one:>9.0f} MB{ratio:>12}  (8 processes of {one:.0f} MB)"
    )


def line(name: str, together: float, alone: float) -> None:
    print(f"{name:10}{together:>10.2f} s{alone:>10.2f} s{'1/' + format(alone / together, '.2f'):>12}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[4, 16], help="episodes per member and update")
    parser.add_argument("--updates", type=int, default=5, help="updates that are timed; the median is shown")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of every process")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="overrides of the config, such as model=smollm2")
    arguments = parser.parse_args()
    if arguments.child:
        rows, slots, updates, threads = json.loads(arguments.child)
        print(json.dumps(measure(rows, slots, updates, threads, arguments.overrides)))
        return
    for rows in arguments.rows:
        compare(rows, arguments.updates, arguments.threads, arguments.overrides)


if __name__ == "__main__":
    main()
