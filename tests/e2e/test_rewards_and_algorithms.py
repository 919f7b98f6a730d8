"""A run for each pair of a reward (judge, composite, reward model, progress model) and an algorithm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.errors import UserError
from evo_hpo.runtime.run import run
from tests.building import small
from tests.rewards.judge.server import JudgeServer, Request, Response, failing, scored

ALGORITHMS = ("ppo", "grpo", "cispo", "gigpo")
TINY = [
    "env=guess_number",
    "evolution.population=2",
    "rollout.group_size=3",
    "evaluation.tasks=2",
    "evaluation.final_tasks=2",
]


def started(folder: Path, *overrides: str) -> list[dict[str, Any]]:
    """A small run in `folder`; its lines of metrics."""
    composed = compose(small(*TINY, *overrides))
    config = build(composed.values, composed.provenance, composed.choices)
    folder.mkdir(parents=True, exist_ok=True)
    run(config, composed.values, folder)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def shorter_is_better(request: Request) -> Response:
    """A judge that counts characters, and answers in another order."""
    length = {name: len(json.dumps(messages)) for name, messages in request.trajectories.items()}
    return scored([(name, round(1 - n / (2 * max(length.values())), 3)) for name, n in length.items()][::-1])


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer().running() as running:
        running.always = shorter_is_better
        yield running


@pytest.fixture(scope="module")
def scorers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A reward model and a progress model, hardly trained."""
    top = tmp_path_factory.mktemp("scorers")
    pairs = [{"prompt": f"1..32? {n}", "chosen": "16", "rejected": str(n)} for n in range(17, 80)]
    (top / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    started(top / "rm", "algorithm=reward_model", f"algorithm.data={top}/pairs.jsonl")
    started(top / "pm", "algorithm=progress_model", "granularity=sparse")
    return {"reward_model": top / "rm" / "best", "spa": top / "pm" / "best"}


def updates(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [line for line in lines if line["kind"] == "update"]
    assert found and all(line["finite"] == 1 for line in found)
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_judge_teaches_with(algorithm: str, server: JudgeServer, tmp_path: Path) -> None:
    judged = ["reward=ruler", "granularity=sparse", f"reward.client.base_url={server.url}", "reward.client.model=m"]
    center = ["reward.center=true"] if algorithm == "ppo" else []
    lines = updates(started(tmp_path, f"algorithm={algorithm}", *judged, *center, f"reward.client.cache={tmp_path}/c"))
    assert sum(line["judge/calls"] for line in lines) == len(server.requests) > 0
    assert all(line["judge/failed"] == 0 and line["judge/fallback"] == 0 for line in lines)
    assert any(line["reward/ruler"] > 0 for line in lines)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_composite_teaches_with(algorithm: str, tmp_path: Path) -> None:
    parts = [
        "reward=composite",
        "+reward@reward.parts.near=state_progress",
        "+reward.weights.near=0.1",
        "+reward@reward.parts.short=turn_limit",
        "+reward.weights.short=0.02",
    ]
    lines = updates(started(tmp_path, f"algorithm={algorithm}", "granularity=mixed", *parts))
    assert {"reward/success", "reward/short", "reward/near/shaping"} <= lines[0].keys()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("reward", ["reward_model", "spa"])
def test_a_trained_model_teaches_with(algorithm: str, reward: str, scorers: dict[str, Path], tmp_path: Path) -> None:
    granularity = {"reward_model": "sparse", "spa": "dense"}[reward]
    chosen = [f"algorithm={algorithm}", f"reward={reward}", f"granularity={granularity}"]
    lines = updates(started(tmp_path, *chosen, f"reward.path={scorers[reward]}"))
    component = {"reward_model": "reward/model", "spa": "reward/progress"}[reward]
    assert all(component in line for line in lines)
    if reward == "reward_model":  # also where the algorithm itself has no use for the divergence
        assert all(line["kl_limit"] == 0.5 and "kl" in line for line in lines)


def test_customer_service_is_judged_by_its_parts(server: JudgeServer, tmp_path: Path) -> None:
    server.always = lambda request: scored([("tone", 0.5)], label="criterion")
    client = "reward.parts.tone.client"
    lines = updates(
        started(
            tmp_path,
            "reward=customer_service",
            "granularity=sparse",
            f"{client}.base_url={server.url}",
            f"{client}.model=m",
            f"{client}.cache=null",
        )
    )
    assert {"reward/resolved", "reward/leak", "reward/tone", "reward/length"} <= lines[0].keys()
    assert all(line["reward/tone"] == 0.5 and line["judge/failed"] == 0 for line in lines)


def test_a_judge_that_is_down_costs_neither_the_run_nor_its_episodes(server: JudgeServer, tmp_path: Path) -> None:
    server.always = failing(500)
    quick = ["reward.client.retries=1", "reward.client.backoff=0.01", f"reward.client.cache={tmp_path}/c"]
    judged = ["reward=ruler", "granularity=sparse", f"reward.client.base_url={server.url}", "reward.client.model=m"]
    lines = started(tmp_path, *judged, *quick)
    assert all(line["judge/fallback"] == line["judge/groups"] == line["judge/failed"] for line in updates(lines))
    assert {"judge_failures"} <= {line["alarm"] for line in lines if line["kind"] == "alarm"}


def test_a_reward_that_fails_keeps_the_episodes_that_were_played(tmp_path: Path) -> None:
    parts = ["plugins=[tests]", "reward._target_=tests.runtime.worlds.Broken", "granularity=sparse"]
    with pytest.raises(UserError, match=r"task \d+ outcome nan; .*The 12 episodes of update 0 are in"):
        started(tmp_path, *parts, "tracker.episodes=1")
    kept = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert sum(one["split"] == "unscored" for one in kept) == 12
