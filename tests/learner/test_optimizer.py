"""The population optimiser is torch's AdamW on each member."""

from __future__ import annotations

import torch

from algorithms.core import AdamW
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.policy.blocks import Block

SETTINGS = dict(beta1=0.9, beta2=0.99, epsilon=1e-8)


def block_of(members: int) -> Block:
    block = Block({"a": (3, 2), "b": (4,)}, members, torch.device("cpu"))
    block.data.copy_(torch.randn(members, block.size, generator=torch.Generator().manual_seed(0)))
    return block


def gradients(steps: int, members: int, size: int) -> torch.Tensor:
    return 3 * torch.randn(steps, members, size, generator=torch.Generator().manual_seed(1))


def test_ten_steps_equal_torch_adamw_with_clipping_on_each_member() -> None:
    rates, decays, limits = [1e-2, 1e-3, 5e-2], [0.0, 0.1, 0.5], [1.0, 100.0, 0.1]
    block = block_of(3)
    alone = [torch.nn.Parameter(block.data[m].clone()) for m in range(3)]
    optimizers = [
        torch.optim.AdamW([p], lr=rates[m], betas=(0.9, 0.99), eps=1e-8, weight_decay=decays[m])
        for m, p in enumerate(alone)
    ]
    ours = PopulationAdamW(block)
    settings = AdamW(
        learning_rate=torch.tensor(rates),  # type: ignore[arg-type]
        weight_decay=torch.tensor(decays),  # type: ignore[arg-type]
        max_grad_norm=torch.tensor(limits),  # type: ignore[arg-type]
        **SETTINGS,
    )
    for gradient in gradients(10, 3, block.size):
        block.grad.copy_(gradient)
        norms, stepped = ours.step(settings, torch.ones(3, dtype=torch.bool))
        torch.testing.assert_close(norms, gradient.norm(dim=1))
        assert stepped.all() and not block.grad.any()
        for m, p in enumerate(alone):
            p.grad = gradient[m].clone()
            torch.nn.utils.clip_grad_norm_([p], limits[m])
            optimizers[m].step()
    torch.testing.assert_close(block.data, torch.stack([p.detach() for p in alone]))


def test_a_member_that_does_not_step_keeps_everything_bit_for_bit() -> None:
    settings = AdamW(learning_rate=0.1, weight_decay=0.1, max_grad_norm=1.0, **SETTINGS)
    block = block_of(3)
    optimizer = PopulationAdamW(block)
    first, second, third = gradients(3, 3, block.size)
    block.grad.copy_(first)
    optimizer.step(settings, torch.ones(3, dtype=torch.bool))
    before = [t.clone() for t in (block.data, optimizer.first, optimizer.second, optimizer.count)]
    block.grad.copy_(second)
    block.grad[1, 2] = torch.inf
    _, stepped = optimizer.step(settings, torch.tensor([True, True, False]))
    assert stepped.tolist() == [True, False, False]
    for old, new in zip(before, (block.data, optimizer.first, optimizer.second, optimizer.count), strict=True):
        assert torch.equal(old[1:], new[1:]) and not torch.equal(old[0], new[0])
    block.grad.copy_(third)
    optimizer.step(settings, torch.ones(3, dtype=torch.bool))
    assert block.data.isfinite().all()


def test_a_clone_has_its_parents_weights_moments_and_step_count() -> None:
    settings = AdamW(learning_rate=0.1, weight_decay=0.0, max_grad_norm=1.0, **SETTINGS)
    block = block_of(3)
    optimizer = PopulationAdamW(block)
    for gradient in gradients(4, 3, block.size):
        block.grad.copy_(gradient)
        optimizer.step(settings, torch.tensor([True, True, False]))
    parents = torch.tensor([0, 0, 1])
    before = [t.clone() for t in (block.data, optimizer.first, optimizer.second, optimizer.count)]
    block.gather(parents)
    optimizer.gather(parents)
    for old, new in zip(before, (block.data, optimizer.first, optimizer.second, optimizer.count), strict=True):
        assert torch.equal(old[parents], new)
    assert block.views["b"].data_ptr() != 0 and torch.equal(block.views["b"][2], before[0][1, 6:])
