"""Scorers on disk: what is stored scores as what was trained did, and only on the base it belongs to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from envs.core import Episode
from evo_hpo.learner.from_scores import scores
from evo_hpo.learner.learner import Learner
from evo_hpo.learner.scoring import Scored
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.policy.scorers import ABOUT, HEAD, BaseModels, export_scorer
from evo_hpo.runtime.measures import batch_of
from evo_hpo.runtime.processes import Processes
from rewards.core import Score
from tests.building import base_of, config, policy_of, training_of
from tests.learner.test_from_scores import MODELS

CPU = torch.device("cpu")
NARROW = {"weight": torch.zeros(7), "bias": torch.zeros(1)}
ABOUT_IT = {"kind": "reward_model", "mean": 0.0, "std": 1.0}


def played() -> list[Episode]:
    made = training_of(config("evolution=none", "env=guess_number"))
    return made.player.training(made.tasks.training(0, 2), Sampling.same(1, 1.0), 0, version=0)


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return played()


def shaken() -> Policy:
    policy = policy_of(config("evolution=none"), 2)
    policy.add_critic()
    assert policy.critic is not None
    policy.critic.data.copy_(torch.randn(policy.critic.data.shape, generator=torch.Generator().manual_seed(3)) * 0.1)
    return policy


def stored(tmp_path: Path, **about: object) -> Path:
    export_scorer(shaken(), 1, tmp_path / "scorer", ABOUT_IT | about)
    return tmp_path / "scorer"


def test_a_stored_scorer_scores_as_it_did(tmp_path: Path, episodes: list[Episode]) -> None:
    policy, folder = shaken(), stored(tmp_path)
    for one in episodes:
        one.member = 1
    batch = batch_of(Scored(episodes, [Score(0.0)] * len(episodes), [[0.0] * len(e.turns) for e in episodes]), 2, CPU)
    learner = Learner(policy, MODELS[0], Processes(cpu=True), 4096)
    expected = scores(learner.passes, batch)
    # a policy of three members, another rank and other modules: the scorer is its own
    other = config("evolution=none", "model.lora.rank=2", "model.lora.target_modules=[q_proj]")
    told = BaseModels(policy_of(other, 3), 64).scorer(str(folder), "reward_model")(episodes)
    assert [len(each) for each in told] == [len(one.turns) for one in episodes]
    torch.testing.assert_close(torch.tensor([x for each in told for x in each]), expected, atol=1e-4, rtol=1e-3)
    assert expected.std() > 0.01


def test_a_scorer_changes_nothing_about_the_policy(tmp_path: Path, episodes: list[Episode]) -> None:
    policy = policy_of(config("evolution=none", "model.lora.target_modules=[q_proj]"), 1)
    ids_RT = torch.tensor([episodes[0].turns[0].observation_ids])
    with torch.no_grad(), policy.acting("policy"):
        before = policy.base.hidden(ids_RT)
    BaseModels(policy, 4096).scorer(str(stored(tmp_path)), "reward_model")(episodes)
    with torch.no_grad(), policy.acting("policy"):
        assert torch.equal(policy.base.hidden(ids_RT), before)


def test_its_adapter_is_one_of_peft(tmp_path: Path) -> None:
    model = PeftModel.from_pretrained(base_of(config("evolution=none")).model, str(stored(tmp_path)))
    assert any("lora_A" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: (folder / ABOUT).unlink(), "is no scorer .*FileNotFoundError.*algorithm=reward_model"),
        (lambda folder: (folder / ABOUT).write_text("{"), "is no scorer"),
        (lambda folder: (folder / HEAD).write_bytes(b"nothing"), "is no scorer"),
        (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"x"), "reward.path=.* cannot be read"),
        (lambda folder: describe(folder, std=0.0), "is no scorer .*its scores have mean .* and spread 0"),
        (lambda folder: describe(folder, mean=float("nan")), "is no scorer .*its scores have mean nan"),
        (lambda folder: save_file(NARROW, folder / HEAD), "has a head that is not of this base's width 64"),
        (lambda folder: poison(folder), "holds numbers that are not finite; train it again"),
        (
            lambda folder: describe(folder, kind="progress_model"),
            "was trained with algorithm=progress_model; train one",
        ),
        (lambda folder: describe(folder, base="0" * 16), "belongs to another base .*train one on this base"),
    ],
)
def test_what_is_no_scorer_for_this_base_is_refused(tmp_path: Path, spoil: object, sentence: str) -> None:
    folder = stored(tmp_path)
    spoil(folder)  # type: ignore[operator]
    with pytest.raises(ValueError, match=sentence):
        BaseModels(policy_of(config("evolution=none"), 1), 4096).scorer(str(folder), "reward_model")


def poison(folder: Path) -> None:
    head = load_file(folder / HEAD)
    head["bias"] = head["bias"] * float("nan")
    save_file(head, folder / HEAD)


def describe(folder: Path, **changes: str | float) -> None:
    about = json.loads((folder / ABOUT).read_text())
    (folder / ABOUT).write_text(json.dumps(about | changes))


def test_another_base_is_told_apart(tmp_path: Path) -> None:
    fresh = policy_of(config("evolution=none", "model.init=random", "algorithm.kl.coef=0"), 1)
    with pytest.raises(ValueError, match="belongs to another base"):
        BaseModels(fresh, 4096).scorer(str(stored(tmp_path)), "reward_model")


def test_the_belief_in_the_answer_is_that_of_the_base_before_each_action(episodes: list[Episode]) -> None:
    policy = policy_of(config("evolution=none"), 1)
    policy.block.data.normal_()  # the policy's own adapters have no say
    told = BaseModels(policy, 128).answer_logprobs(episodes)
    base = base_of(config("evolution=none"))
    for one, logprobs in zip(episodes, told, strict=True):
        before: list[int] = []
        assert one.answer is not None
        for turn, logprob in zip(one.turns, logprobs, strict=True):
            before += turn.observation_ids
            answer = base.chat.action(one.answer)
            with torch.no_grad():
                logits = base.model(torch.tensor([before + answer])).logits[0].log_softmax(-1)
            expected = sum(float(logits[len(before) - 1 + i, token]) for i, token in enumerate(answer)) / len(answer)
            assert logprob == pytest.approx(expected, abs=1e-3)
            before += turn.action_ids
