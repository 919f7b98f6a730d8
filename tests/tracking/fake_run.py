"""A made-up run with the shape of a real one: numbers that rise, one member that collapses, clones, transcripts."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from evo_hpo.tracking.alarms import Watch
from evo_hpo.tracking.core import GenerationRecord, MemberGeneration, MemberUpdate, RunInfo, Tracker, UpdateRecord
from evo_hpo.tracking.statistics import wilson
from evo_hpo.tracking.turnwise import turn_name

SPACE = {
    "algorithm.optimizer.lr": (1e-4, 1e-2),
    "algorithm.kl.coef": (1e-4, 1e-1),
    "algorithm.objective.clip_low": (0.1, 0.3),
    "rollout.temperature": (0.7, 1.3),
}
EVALUATED = 96
MAP = "SFFF\nFHFH\nFFFH\nHFFG"


def run_info(folder: Path, population: int = 8, generations: int = 6, updates: int = 8, resumed_at: int = 0) -> RunInfo:
    config = {"name": "lake", "seed": 1, "algorithm": {"optimizer": {"lr": 1e-3}}, "judge": {"api_key": "<removed>"}}
    started = [_draw(random.Random(member)) for member in range(population)]
    return RunInfo(
        folder,
        "lake",
        config,
        population,
        [("rl", generations, updates)],
        list(SPACE),
        resumed_at,
        hyperparameters=started,
    )


def play(
    tracker: Tracker, run: RunInfo, seed: int = 0, first: int = 0, last: int | None = None, transcripts: int = 4
) -> dict[str, Any]:
    """Send generations `first` … `last` of a run to `tracker`, without `start` and the end; returns a result."""
    dice = random.Random(seed)
    watch = Watch()
    _, generations, updates = run.stages[0]
    skill = [0.42] * run.population
    hyper = [dict(each) for each in run.hyperparameters]
    found = 0
    worths: list[tuple[float, float, float]] = []
    for generation in range(generations):
        live = first <= generation < (generations if last is None else last)
        for inner in range(updates):
            update = generation * updates + inner
            parts = [MemberUpdate(m, _metrics(dice, skill, hyper, m)) for m in range(run.population)]
            record = UpdateRecord(
                "rl", generation, update, parts, 2.5 * (update + 1), 9_000 * (update + 1), 900 * update
            )
            alarms = watch.update(record)
            found += len(alarms)
            if live:
                tracker.update(record)
                for alarm in alarms:
                    tracker.alarm(alarm)
        episodes = [_episode(dice, m, skill[m], i) for m in range(len(skill)) for i in range(transcripts)]
        if live:
            tracker.episodes(generation, "eval", episodes)
        worths = [wilson(round(s * EVALUATED), EVALUATED) for s in skill]
        order = sorted(range(len(skill)), key=lambda m: -worths[m][0])
        quarter = max(1, len(skill) // 4)
        members, parents = [], list(range(len(skill)))
        for rank, m in enumerate(order):
            if rank >= len(order) - quarter and generation < generations - 1:
                parents[m] = order[rank % quarter]
        after = [_perturb(dice, hyper[p]) if p != m else hyper[m] for m, p in enumerate(parents)]
        for m, parent in enumerate(parents):
            event = "cloned" if parent != m else "elite" if m == order[0] else "kept"
            rate, low, high = worths[m]
            text = f"Member {m} ({rate:.2f}) is replaced by a copy of member {parent} ({worths[parent][0]:.2f})"
            members.append(
                MemberGeneration(
                    m, rate, low, high, hyper[m], parent, event, after[m],
                    text if event == "cloned" else f"Member {m} ({rate:.2f}) goes on", f"{dice.getrandbits(64):016x}",
                )
            )  # fmt: skip
        done = (generation + 1) * updates
        closing = GenerationRecord("rl", generation, done, members, 2.5 * done + 1, 9_000 * done, 900 * done)
        watch.generation(closing)
        if live:
            tracker.generation(closing)
        skill, hyper = [skill[p] for p in parents], after
    best = max(range(len(skill)), key=lambda m: worths[m][0])
    return _result(best, skill[best], run, found)


def write_rest(folder: Path, result: dict[str, Any]) -> None:
    """The files that the runtime, not a tracker, leaves in a run folder."""
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "config.yaml").write_text(
        "name: lake\nseed: 1\nalgorithm:\n  optimizer:\n    lr: 0.001\n  kl:\n    coef: 0.01\nrollout:\n  tasks: 4\n"
        "judge:\n  api_key: abcdefgh\n"
    )
    (folder / "provenance.yaml").write_text(
        "algorithm.optimizer.lr: override algorithm.optimizer.lr=0.001\nrollout.tasks: conf/rollout/fused.yaml\n"
    )


def _result(best: int, skill: float, run: RunInfo, alarms: int) -> dict[str, Any]:
    def rate(value: float) -> dict[str, float]:
        return dict(zip(("success", "low", "high"), wilson(round(value * 256), 256), strict=True))

    _, generations, updates = run.stages[0]
    return {
        "base": rate(0.42) | {"fitness": rate(0.40)},
        "best": {"member": best} | rate(skill),
        "seconds": 2.5 * generations * updates,
        "peak_rss_mb": 640,
        "policy_tokens": 9_000 * generations * updates,
        "environment_turns": 900 * generations * updates,
        "generations": generations,
        "population": run.population,
        "alarms": alarms,
    }


def _draw(dice: random.Random) -> dict[str, float]:
    return {key: math.exp(dice.uniform(math.log(low), math.log(high))) for key, (low, high) in SPACE.items()}


def _perturb(dice: random.Random, hyper: dict[str, float]) -> dict[str, float]:
    return {k: min(max(v * dice.choice([0.8, 1.25]), SPACE[k][0]), SPACE[k][1]) for k, v in hyper.items()}


def _metrics(dice: random.Random, skill: list[float], hyper: list[dict[str, float]], m: int) -> dict[str, float]:
    lr = hyper[m]["algorithm.optimizer.lr"]
    collapsed = lr > 7e-3
    step = -0.06 if collapsed else 0.012 * math.exp(-(math.log(lr / 2e-3) ** 2))
    skill[m] = min(0.93, max(0.0, skill[m] + step + dice.gauss(0, 0.006)))
    success = min(1.0, max(0.0, skill[m] + dice.gauss(0, 0.06)))
    return {
        "loss": dice.gauss(0, 0.02),
        "reward": success + 0.1,
        "outcome": success + 0.1,
        "reward_std": 0.02 + success * (1 - success),
        "success": success,
        "kl": 40 * lr * (1 + dice.random()),
        "entropy": 0.01 if collapsed and skill[m] < 0.2 else 0.35 + 0.3 * dice.random() - 0.2 * skill[m],
        "grad_norm": math.exp(dice.gauss(-1.5, 0.4)),
        "clip_fraction_low": 0.02 * dice.random(),
        "clip_fraction_high": 0.03 * dice.random(),
        "ratio_max": 1 + 200 * lr * dice.random(),
        "zero_spread": 0.2,
        "finite": 1.0,
        "repetition": 0.95 if collapsed and skill[m] < 0.1 else 0.0,
        "valid": 0.97,
        "turns": 6.5,
        "failed": 0.0,
        "action_tokens": 3.1,
        "truncated": 0.0,
        "group_std": 0.4 * success,
        "ess": 0.97,
        "gap_mean": 0.01,
        **{turn_name("entropy", k): 0.5 - 0.05 * k for k in range(10)},
        **{turn_name("reward", k): 0.1 * success * k for k in range(10)},
    }


def _episode(dice: random.Random, member: int, skill: float, index: int) -> dict[str, Any]:
    won = dice.random() < skill
    moves = ["down", "down", "right", "down", "right", "right"] if won else ["right", "down"]
    turns = [
        {
            "observation": f"You are on a frozen lake.\n{MAP}\nYou stand at row {i // 2}, column {i % 2}.",
            "action": move,
            "reward": 0.17 if won else -0.1,
            "valid": True,
            "truncated": False,
            "tokens": 3,
        }
        for i, move in enumerate(moves)
    ]
    return {
        "task": 10_000 + index, "member": member, "group": index, "success": won, "stop": "terminated",
        "outcome": float(won), "turns": turns,
        "final_observation": "You reached the goal." if won else "You fell into a hole.", "error": "",
    }  # fmt: skip
