"""What an environment that declares nothing answers."""

import math
from typing import Any

import pytest

from envs.core import Step, StopReason
from tests.envs.broken import HangsOnStep, NoisyText, Plain, RaisesOnReset, RaisesOnStep


def test_an_undeclared_snapshot_is_refused_and_every_other_undeclared_ability_is_none() -> None:
    env = Plain()
    env.reset(0)
    for fork in (env.snapshot, lambda: env.restore(None)):
        with pytest.raises(TypeError, match="Plain does not declare Feature.SNAPSHOT"):
            fork()
    assert [env.task_key(), env.state_key(), env.expert(), env.actions(), env.privileged()] == [None] * 5
    assert [env.answer(), env.potential(), env.turn_totals] == [None] * 3


def test_only_faults_of_the_environment_count_as_failed() -> None:
    assert [reason for reason in StopReason if reason.failed] == [StopReason.ENV_ERROR, StopReason.ENV_TIMEOUT]


def test_broken_environments_break_on_the_chosen_seeds_only() -> None:
    reset, step = RaisesOnReset(every=3), RaisesOnStep(every=3, turn=2)
    for seed in (1, 2, 4):
        assert reset.reset(seed) == step.reset(seed) == "ready"
        assert step.step("a").done is False and step.step("a").success is True
    with pytest.raises(ValueError, match="no such task: 3"):
        reset.reset(3)
    step.reset(3)
    step.step("a")
    with pytest.raises(RuntimeError, match="broke on turn 2"):
        step.step("a")
    assert HangsOnStep(every=3, seconds=60).fresh().seconds == 60


def test_noisy_text_repeats_itself_and_is_valid_unless_surrogates_are_asked_for() -> None:
    texts = [NoisyText().reset(seed) for seed in range(200)]
    assert texts == [NoisyText().reset(seed) for seed in range(200)]
    assert "".join(texts).encode("utf-8").count(b"<|im_start|>") > 10
    with pytest.raises(UnicodeEncodeError):
        "".join(NoisyText(surrogates=True).reset(seed) for seed in range(200)).encode("utf-8")


@pytest.mark.parametrize("fault", [{"reward": math.nan}, {"reward": -math.inf}, {"signals": {"hint": math.nan}}])
def test_an_answer_with_a_number_that_is_not_finite_is_no_answer(fault: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the environment gave .*, which is no finite number"):
        Step("", **fault)
