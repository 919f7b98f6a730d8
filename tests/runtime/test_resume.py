"""A run that was stopped goes on and ends as if it had never been stopped, bit for bit."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from evo_hpo.config.errors import ConfigError, UserError
from evo_hpo.runtime.checkpoints import Checkpoints
from tests.rewards.judge.server import JudgeServer, Request, Response, scored
from tests.runtime.support import BASE, GENERATION, Left, process, quick, resumed, started, stored
from tests.runtime.worlds import SIGNAL, SIGNAL_AT

GENERATIONS = "pipeline.stages.train.generations"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    started(folder)
    assert '"cloned"' in (folder / "lineage.jsonl").read_text(), "evolution is meant to have something to restore"
    return folder


@pytest.fixture
def copy(unbroken: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unbroken, tmp_path / "copy"))


def stopped(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Stop the next run of this process at its `at`-th step of an environment."""
    monkeypatch.setenv(SIGNAL_AT, str(at))
    monkeypatch.setenv(SIGNAL, "SIGTERM")


def test_a_run_that_is_stopped_again_and_again_ends_as_one_that_never_was(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    reached = []
    for at in (
        10,  # while the base is evaluated
        BASE + 20,  # while the first generation is trained, and again from the start
        BASE + GENERATION + 30,  # in the second generation
        60,  # in the second generation again, while it is evaluated
        GENERATION + 5,  # in the third
        GENERATION + 5,  # while the result is measured
    ):
        stopped(monkeypatch, at)
        with pytest.raises(KeyboardInterrupt):
            resumed(folder) if folder.exists() else started(folder)
        reached.append(Checkpoints(folder, 3).generations())
        assert f"continue with: python launch.py resume={folder}" in capsys.readouterr().err
    assert reached == [[], [], [1], [1], [1, 2], [1, 2, 3]]
    stopped(monkeypatch, 0)
    resumed(folder)
    Left.by(folder).assert_same(Left.by(unbroken))


def test_a_finished_run_that_is_resumed_gives_the_same_result_again(unbroken: Path, copy: Path) -> None:
    resumed(copy)
    Left.by(copy).assert_same(Left.by(unbroken))


def test_a_run_can_go_on_from_an_older_generation_and_the_newer_checkpoints_are_dropped(
    unbroken: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt):
        resumed(copy, "generation=1")
    assert Checkpoints(copy, 3).generations() == [1]
    assert not (copy / "result.json").exists(), "the result of a run that goes on is none"
    stopped(monkeypatch, 0)
    resumed(copy)
    Left.by(copy).assert_same(Left.by(unbroken))


def test_a_process_that_is_killed_leaves_a_run_that_ends_the_same(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed = process(
        quick(f"hydra.run.dir={folder}"), tmp_path, **{SIGNAL_AT: str(BASE + GENERATION + 50), SIGNAL: "SIGKILL"}
    )
    assert killed.wait(timeout=120) == -signal.SIGKILL
    assert Checkpoints(folder, 3).generations() and not (folder / "result.json").exists()
    resumed(folder)
    Left.by(folder).assert_same(Left.by(unbroken))


@pytest.mark.parametrize("override", ["seed=1", "env.length=4", "algorithm.kl.coef=0.5", "rollout.group_size=8"])
def test_a_run_does_not_go_on_as_another_one(unbroken: Path, override: str) -> None:
    name, _, value = override.partition("=")
    with pytest.raises(UserError, match=rf"{name} was .* and is now {value}.*start a new run"):
        resumed(unbroken, override)
    assert (unbroken / "result.json").exists(), "a refusal must change nothing"


def test_a_config_that_was_edited_in_between_is_refused_with_the_difference(copy: Path) -> None:
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("group_size: 4", "group_size: 8"))
    with pytest.raises(UserError, match="rollout.group_size was 4 and is now 8"):
        resumed(copy)


def test_a_run_can_go_on_for_longer_and_its_record_says_so(copy: Path) -> None:
    result = resumed(copy, "pipeline.stages.train.generations=4", "tracker.console=lines", "learner.micro_tokens=500")
    assert result["generations"] == 4
    assert len(Left.by(copy).progress["history"]) == 4
    assert stored(copy)["pipeline"]["stages"]["train"]["generations"] == 4
    source = stored(copy, "provenance.yaml")["pipeline.stages.train.generations"]
    assert source == "override pipeline.stages.train.generations=4 when resumed"


def test_a_run_that_went_beyond_its_own_budget_can_be_resumed_as_it_is(tmp_path: Path) -> None:
    spent = started(tmp_path / "run", "budget.environment_turns=1")
    assert spent["generations"] == 1 and spent["environment_turns"] > 1
    assert resumed(tmp_path / "run")["generations"] == 1


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["generations=2"], "generations=2, and the run has 3 generations of it; write 3 or more, or name an earlier"),
        (["budget.environment_turns=9"], "budget.environment_turns=9, and the run has spent .*; write more"),
    ],
)
def test_a_run_is_not_cut_to_less_than_it_has_done(copy: Path, overrides: list[str], sentence: str) -> None:
    before = stored(copy)
    changes = [line.replace("generations", GENERATIONS) for line in overrides]
    with pytest.raises(UserError, match=sentence):
        resumed(copy, *changes)
    assert stored(copy) == before
    assert resumed(copy, "generation=1", f"{GENERATIONS}=2")["generations"] == 2


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("tracker=off", "tracker=off would exchange a whole part of a run that has begun; name single keys"),
        ("generation=last", "generation=last is no number of a generation"),
        ("generation=7", r"has no checkpoint of generation 7; there are .*"),
        ("seed", "'seed' says nothing; write key=value"),
        ("tracker.consol=off", "tracker.consol.*did you mean"),
        ("tracker.console=loud", "tracker.console"),
    ],
)
def test_what_a_resumed_run_cannot_take_is_named(unbroken: Path, override: str, sentence: str) -> None:
    with pytest.raises((UserError, ConfigError), match=sentence):
        resumed(unbroken, override)


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: [")
    with pytest.raises(UserError, match=r"config.yaml cannot be read .*put back what the run wrote"):
        resumed(tmp_path)


def test_sigterm_means_again_what_it_meant_before_the_run(copy: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        resumed(copy)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("species", [[], ["evolution.species.algorithm=[grpo,gspo]"]], ids=["alike", "species"])
def test_a_judge_may_be_asked_more_when_the_run_goes_on_but_not_another_judge(
    species: list[str], tmp_path: Path
) -> None:
    def by_number(request: Request) -> Response:
        return scored([(name, 0.1 * place) for place, name in enumerate(request.trajectories)])

    folder = tmp_path / "run"
    with JudgeServer().running() as server:
        server.always = by_number
        judged = ["reward=ruler", "granularity=sparse", f"reward.client.base_url={server.url}", "reward.client.model=m"]
        started(folder, *judged, *species, "reward.client.cache=null", "reward.client.max_calls=1", f"{GENERATIONS}=1")
        assert len(server.requests) == 1
        resumed(folder, "reward.client.max_calls=3", f"{GENERATIONS}=2")
        assert len(server.requests) == 3, "the call of before counts"
        with pytest.raises(UserError, match="must go on as it began, and reward.client.model was 'm' and is now 'n'"):
            resumed(folder, "reward.client.model=n", f"{GENERATIONS}=3")
