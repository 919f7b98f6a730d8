"""A composite is put together in YAML: on the command line, in a file of its own, or in an experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewards.composite import Composite
from rewards.forbidden import Forbidden
from rewards.judge.rubric import Rubric
from rewards.turn_limit import TurnLimit
from tests.config.support import loaded, refusals, write_yaml


def composite(*overrides: str, extra: Path | None = None) -> Composite:
    reward = loaded(*overrides, extra=extra)[0].reward
    assert isinstance(reward, Composite)
    return reward


def test_the_published_example_has_the_published_parts_and_weights() -> None:
    reward = composite("reward=customer_service", "granularity=sparse", "reward.parts.tone.client.model=any")
    assert reward.weights == {"resolved": 1.0, "leak": 1.0, "tone": 0.3, "length": 0.02}
    assert reward.parts["length"] == TurnLimit(free_turns=5, paid="outcome")
    assert isinstance(reward.parts["leak"], Forbidden) and len(reward.parts["leak"].kinds) == 4
    tone = reward.parts["tone"]
    assert isinstance(tone, Rubric) and "even where it has to refuse" in tone.criteria["tone"].ask
    assert reward.once and not reward.relative
    assert reward.component_names >= {"resolved", "leak", "tone", "length", "tone/tone", "leak/email"}


def test_parts_are_added_and_set_on_the_command_line() -> None:
    added = ["+reward@reward.parts.short=turn_limit", "+reward.weights.short=0.1", "reward.parts.short.free_turns=3"]
    reward = composite("reward=composite", *added)
    assert list(reward.parts) == ["success", "short"]
    assert reward.parts["short"] == TurnLimit(free_turns=3, paid="outcome")
    assert reward.weights == {"success": 1.0, "short": 0.1}


def test_the_recipes_in_the_header_of_the_file_work_as_they_stand(tmp_path: Path) -> None:
    lines = (Path(__file__).parents[2] / "conf/reward/composite.yaml").read_text(encoding="utf-8").splitlines()
    header = [line.removeprefix("#").removeprefix("   ") for line in lines if line.startswith("#")]
    starts = [k for k, line in enumerate(header) if line == "defaults:"]
    of_its_own, experiment = ("\n".join(header[k : header.index("", k)]) for k in starts)
    [command] = [line for line in header if line.startswith("python launch.py ")]
    write_yaml(tmp_path / "reward", "mine", of_its_own)
    write_yaml(tmp_path / "experiment", "mine", f"# @package _global_\n{experiment}")
    for overrides, free in ((command.split()[2:], 5), (["reward=mine"], 3), (["experiment=mine"], 3)):
        reward = composite(*overrides, extra=tmp_path)
        assert reward.weights == {"success": 1.0, "short": 0.02}
        assert reward.parts["short"] == TurnLimit(free_turns=free, paid="outcome")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["+reward.weights.short=1"], "reward: weights names short, and no part has that name (there is success)"),
        (
            ["+reward@reward.parts.short=turn_limit"],
            "reward: the part short has no weight; write short: 1",
        ),
        (["~reward.weights.success"], "reward: the part success has no weight"),
        (["reward.weights.success=much"], "reward.weights.success must be a number, not 'much'"),
        (["+reward.parts.short=5", "+reward.weights.short=1"], "reward.parts.short must be built from the `_target_`"),
        (["reward.parts.success.sucess_reward=2"], "there is no key 'reward.parts.success.sucess_reward'"),
    ],
)
def test_a_composite_that_does_not_fit_together_is_refused_in_a_sentence(overrides: list[str], sentence: str) -> None:
    assert any(found.startswith(sentence) for found in refusals("reward=composite", *overrides))


def test_a_part_that_the_environment_cannot_feed_is_refused() -> None:
    answers = ["+reward@reward.parts.right=answer_match", "+reward.weights.right=1"]
    [sentence] = refusals("reward=composite", *answers)
    assert sentence.startswith("reward=composite needs answer, and env=frozen_lake gives none; use env=guess_number")
    composite("reward=composite", "env=guess_number", *answers)
