"""The population is a batch dimension: stacked adapters equal each member alone, and peft loads what is exported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from evo_hpo.policy.adapters import target_modules
from evo_hpo.policy.base import TINY
from evo_hpo.policy.exchange import export, start_from
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from tests.building import config, policy_of, shake


def logprobs(policy: Policy, ids: torch.Tensor, role: str = "policy") -> torch.Tensor:
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    with torch.no_grad(), policy.acting(role):  # type: ignore[arg-type]
        return policy.logprobs(ids, mask, Sampling.same(ids.shape[0], 1.0))[0]


def test_a_fresh_member_is_the_base() -> None:
    policy = policy_of(config(), members=3)
    ids = torch.randint(5, 300, (6, 9))
    assert torch.equal(logprobs(policy, ids), logprobs(policy, ids, "reference"))


def test_rows_of_a_population_see_only_their_own_member() -> None:
    four = policy_of(config(), members=4)
    shake(four)
    ids = torch.randint(5, 300, (8, 9))
    together = logprobs(four, ids)
    for slot in range(4):
        one = policy_of(config(), members=1, slots=[slot])
        shake(one)
        assert torch.equal(one.block.data[0], four.block.data[slot])
        torch.testing.assert_close(logprobs(one, ids[2 * slot : 2 * slot + 2]), together[2 * slot : 2 * slot + 2])
    assert not torch.allclose(logprobs(four, ids.roll(2, 0)).roll(-2, 0), together)


def test_gradients_of_members_never_mix() -> None:
    policy = policy_of(config(), members=3)
    shake(policy)
    ids = torch.randint(5, 300, (3, 9))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    with policy.acting("policy"):
        policy.logprobs(ids, mask, Sampling.same(3, 1.0))[0][1].sum().backward()
    norms = policy.block.grad.norm(dim=1)
    assert norms[0] == 0 and norms[1] > 0 and norms[2] == 0


def test_an_exported_member_gives_the_same_logits_in_peft(tmp_path: Path) -> None:
    policy = policy_of(config(), members=3)
    shake(policy)
    export(policy, 1, tmp_path / "adapter")
    ids = torch.randint(5, 300, (3, 12))
    with torch.no_grad(), policy.acting("policy"):
        ours = policy.base.model(ids).logits[1]
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(TINY), tmp_path / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids[1:2]).logits[0], ours, rtol=1e-5, atol=1e-5)


def test_an_exported_member_can_start_every_member_and_is_then_the_reference(tmp_path: Path) -> None:
    source = policy_of(config(), members=2)
    shake(source)
    export(source, 1, tmp_path)
    policy = policy_of(config(), members=3)
    start_from(policy, str(tmp_path))
    assert all(torch.equal(row, source.block.data[1]) for row in policy.block.data)
    ids = torch.randint(5, 300, (3, 9))
    assert torch.equal(logprobs(policy, ids), logprobs(policy, ids, "reference"))


def test_a_start_adapter_of_another_rank_is_refused_with_what_to_write(tmp_path: Path) -> None:
    export(policy_of(config("model.lora.rank=4", "model.lora.alpha=4"), 1), 0, tmp_path)
    with pytest.raises(ValueError, match="model.lora.rank=4 model.lora.alpha=4"):
        start_from(policy_of(config(), 2), str(tmp_path))


def test_unknown_target_modules_are_named_with_those_there_are() -> None:
    policy = policy_of(config(), 1)
    with pytest.raises(ValueError, match=r"q_project.*it has .*q_proj"):
        target_modules(policy.base.model, ["q_project"], None)


def test_base_weights_are_bit_identical_after_a_hundred_forward_and_backward_passes() -> None:
    policy = policy_of(config(), 2)
    before = {name: p.clone() for name, p in policy.base.model.named_parameters()}
    ids = torch.randint(5, 300, (2, 9))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    for _ in range(100):
        with policy.acting("policy"):
            policy.logprobs(ids, mask, Sampling.same(2, 1.0))[0].sum().backward()
    assert all(torch.equal(before[name], p) for name, p in policy.base.model.named_parameters())
    assert policy.router.route is None


def test_gradient_checkpointing_gives_the_same_gradient() -> None:
    ids = torch.randint(5, 300, (4, 9))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    gradients = []
    for setting in ("false", "true"):
        policy = policy_of(config(f"model.gradient_checkpointing={setting}"), 2)
        shake(policy)
        with policy.acting("policy"):
            policy.logprobs(ids, mask, Sampling.same(4, 1.0))[0].sum().backward()
        gradients.append(policy.block.grad.clone())
    torch.testing.assert_close(gradients[0], gradients[1])


def test_chunked_logits_give_the_same_logprobs_and_gradient() -> None:
    ids = torch.randint(5, 300, (4, 9))
    mask = torch.rand(4, 9) < 0.6
    mask[:, 0] = False
    results = []
    for chunk in (3, 4096):
        policy = policy_of(config(), 2)
        policy.logit_chunk = chunk
        shake(policy)
        with policy.acting("policy"):
            logprob, entropy = policy.logprobs(ids, mask, Sampling.same(4, 0.7), entropy_gradient=True)
            (logprob.sum() + entropy.sum()).backward()
        results.append((logprob.detach(), entropy.detach(), policy.block.grad.clone()))
    for small, large in zip(*results, strict=True):
        torch.testing.assert_close(small, large, rtol=1e-4, atol=1e-4)
