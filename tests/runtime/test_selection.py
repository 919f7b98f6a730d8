"""What a strategy decides is done: members retire, begin anew, and the others do not notice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from evo_hpo.runtime.checkpoints import Checkpoints
from evo_hpo.runtime.members import stored_member
from evo_hpo.runtime.selection import due
from tests.runtime.support import Left, resumed, started

SCRIPT = "+evolution.strategy={_target_: tests.runtime.worlds.Scripted, retire: [%s], restart: [%s]}"


def scripted(retire: str, restart: str = "-1, -1") -> list[str]:
    return ["~evolution.strategy", SCRIPT % (retire, restart), "evolution.population=4", "algorithm=ppo"]


def lineage(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "lineage.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("runs")
    started(top / "whole", *scripted("-1, -1"))
    started(top / "shrinking", *scripted("1, 0"))  # slot 1 after the first generation, slot 0 after the second
    started(top / "renewed", *scripted("-1, -1", restart="2, -1"))
    return {path.name: path for path in top.iterdir()}


def test_members_that_retire_are_gone_and_the_others_keep_their_slots(runs: dict[str, Path]) -> None:
    events = [(line["generation"], line["member"], line["event"]) for line in lineage(runs["shrinking"])]
    assert [e for e in events if e[2] == "retired"] == [(0, 1, "retired"), (1, 0, "retired")]
    assert [member for generation, member, _ in events if generation == 2] == [2, 3]
    newest = Checkpoints(runs["shrinking"], 3).load()
    assert newest.state["progress"]["slots"] == [2, 3]
    assert {name: len(tensor) for name, tensor in newest.tensors.items() if tensor.ndim} == {
        name: 2 for name, tensor in newest.tensors.items() if tensor.ndim
    }


def test_those_who_stay_learn_what_they_would_have_learned_anyway(runs: dict[str, Path]) -> None:
    whole, shrinking = (Checkpoints(runs[name], 3).load().tensors for name in ("whole", "shrinking"))
    for name in ("policy", "critic", "optimizer.first", "critic_optimizer.second"):
        torch.testing.assert_close(shrinking[name], whole[name][2:], atol=2e-4, rtol=1e-3)


def test_a_shrunk_population_goes_on_after_a_stop(runs: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs["shrinking"], tmp_path / "copy"))
    resumed(copy, "generation=1", "tracker.console=lines")
    Left.by(copy).assert_same(Left.by(runs["shrinking"]))


def test_its_result_and_schedule_name_slots(runs: dict[str, Path]) -> None:
    result = json.loads((runs["shrinking"] / "result.json").read_text())
    assert result["best"]["member"] in (2, 3) and result["population"] == 4
    schedule = (runs["shrinking"] / "schedule.yaml").read_text()
    assert f"member: {result['best']['member']}" in schedule
    assert stored_member(runs["shrinking"], str(result["best"]["member"])).policy.members == 1


def test_a_member_that_begins_anew_is_where_the_run_began_with_other_values(runs: dict[str, Path]) -> None:
    line = next(line for line in lineage(runs["renewed"]) if line["event"] == "restarted")
    assert (line["generation"], line["member"]) == (0, 2) and "begins anew" in line["text"]
    assert line["before"] != line["after"]
    first = Checkpoints(runs["renewed"], 3).load(1).tensors
    kept = Checkpoints(runs["whole"], 3).load(1).tensors
    for name in ("optimizer.first", "optimizer.second", "critic_optimizer.first"):
        assert first[name][2].eq(0).all() and not kept[name][2].eq(0).all(), name
    assert first["optimizer.count"][2] == 0
    others = [0, 1, 3]
    assert torch.equal(first["policy"][others], kept["policy"][others])
    assert not torch.equal(first["policy"][2], kept["policy"][2])


@pytest.mark.parametrize("budget", ["policy_tokens", "environment_turns", "updates"])
def test_a_run_ends_with_the_generation_that_comes_nearest_to_its_budget(
    runs: dict[str, Path], budget: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in (runs["whole"] / "metrics.jsonl").read_text().splitlines()]
    after = {line["generation"]: line for line in lines if line["kind"] == "generation"}
    limit = 2 if budget == "updates" else after[1][budget]
    shown = "tracker.console=lines"
    result = started(tmp_path / "run", *scripted("-1, -1"), f"budget.{budget}={limit}", shown)
    assert 0 < result["generations"] < 3
    reached = after[result["generations"] - 1]
    spent = result["updates"] if budget == "updates" else reached[budget]
    assert abs(spent - limit) <= Checkpoints(tmp_path / "run", 3).load().state["progress"]["latest"][budget] / 2
    last = [line for line in lineage(tmp_path / "run") if line["generation"] == result["generations"] - 1]
    assert all("the budget ends here" in line["text"] for line in last)
    said = capsys.readouterr().out
    assert f"it ends sooner where a budget is spent: {limit:,g} {budget.replace('_', ' ')}" in " ".join(said.split())
    assert f"he budget ends the run after generation {result['generations']}" in said
    assert resumed(tmp_path / "run", f"budget.{budget}=100000000")["generations"] == 3


def test_a_budget_that_is_not_reached_changes_nothing(runs: dict[str, Path], tmp_path: Path) -> None:
    started(tmp_path / "run", *scripted("-1, -1"), "budget.policy_tokens=100000000", "budget.seconds=1e9")
    assert lineage(tmp_path / "run") == lineage(runs["whole"])


def test_the_best_of_all_trials_is_the_result_although_its_slot_began_anew(tmp_path: Path) -> None:
    searching = ["evolution=tpe", "evolution.strategy.trial=1", "evolution.population=4", "seed=2"]
    result = started(tmp_path / "run", *searching, "pipeline.stages.train.generations=5", "checkpoint.keep=9")
    lines = lineage(tmp_path / "run")
    first_best = max(lines, key=lambda line: (line["fitness"], -line["generation"], -line["member"]))
    assert first_best["generation"] < 4, "choose another seed: the best trial is meant to be an early one"
    assert result["best"]["member"] == first_best["member"]
    assert result["best"]["hyperparameters"] == pytest.approx(first_best["before"])
    [step] = yaml.safe_load((tmp_path / "run" / "schedule.yaml").read_text())
    assert (step["generation"], step["member"]) == (first_best["generation"], first_best["member"])
    assert result["best"]["generations"] == first_best["generation"] + 1
    slot = first_best["member"]
    present = Checkpoints(tmp_path / "run", 9).load(5).tensors["policy"]
    as_it_is = stored_member(tmp_path / "run", str(slot)).policy.block.data[0]
    assert torch.equal(as_it_is, present[slot]), "the member itself has trained on"
    assert not torch.equal(as_it_is, stored_member(tmp_path / "run", "best").policy.block.data[0])
    exported = load_file(tmp_path / "run" / "best" / "adapter_model.safetensors")
    champion = Checkpoints(tmp_path / "run", 9).load(first_best["generation"] + 1).tensors["champion.policy"]
    sizes = sum(tensor.numel() for tensor in exported.values())
    assert sizes == champion.numel()
    ours = torch.sort(champion).values
    assert torch.equal(ours, torch.sort(torch.cat([tensor.flatten() for tensor in exported.values()])).values)


def test_a_search_goes_on_after_a_stop_with_its_champion(tmp_path: Path) -> None:
    searching = ["evolution=tpe", "evolution.strategy.trial=1", "evolution.population=3"]
    started(tmp_path / "run", *searching)
    copy = Path(shutil.copytree(tmp_path / "run", tmp_path / "copy"))
    resumed(copy, "generation=1")
    Left.by(copy).assert_same(Left.by(tmp_path / "run"))


def test_selection_waits_for_the_burn_in_and_comes_at_its_interval() -> None:
    assert [g for g in range(10) if due(g, burn_in=0, every=1)] == list(range(10))
    assert [g for g in range(10) if due(g, burn_in=3, every=1)] == [3, 4, 5, 6, 7, 8, 9]
    assert [g for g in range(10) if due(g, burn_in=2, every=3)] == [4, 7]


@pytest.mark.parametrize(("burn_in", "every"), [(0, 2), (1, 1), (2, 1), (5, 1), (0, 7)])
def test_no_burn_in_and_no_interval_keeps_a_run_from_its_end(burn_in: int, every: int, tmp_path: Path) -> None:
    waits = [f"evolution.burn_in={burn_in}", f"evolution.every={every}", "evolution.population=3"]
    assert started(tmp_path / "run", *waits, "evolution=tournament")["generations"] == 3
    for line in lineage(tmp_path / "run"):
        asked = line["generation"] < 2 and due(line["generation"], burn_in, every)
        assert line["selected"] is asked  # the stage ends after the third
        if line["generation"] < 2 and not asked:
            assert line["event"] == "kept" and "selection is not due yet" in line["text"]


def test_what_selection_itself_costs_does_not_end_a_run_that_has_just_selected(tmp_path: Path) -> None:
    """Else clones and mutations went untrained into the result."""
    again = ["evolution=gated", "evolution.strategy.margin=1", "evolution.strategy.evaluation_budget=9"]
    wide = ["evolution.population=4", "evaluation.tasks=24", "pipeline.stages.train.generations=5"]
    started(tmp_path / "free", *again, *wide)
    lines = [json.loads(line) for line in (tmp_path / "free" / "metrics.jsonl").read_text().splitlines()]
    turns = [line["environment_turns"] for line in lines if line["kind"] == "generation" and line["member"] == 0]
    for limit in range(turns[1], turns[3], (turns[3] - turns[1]) // 2):
        folder = tmp_path / str(limit)
        result = started(folder, *again, *wide, f"budget.environment_turns={limit}")
        last = [line for line in lineage(folder) if line["generation"] == result["generations"] - 1]
        assert {line["event"] for line in last} == {"kept"} and all("ends here" in line["text"] for line in last)
