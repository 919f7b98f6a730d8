"""A population of agents on one base: who they are, and what they would say."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from evo_hpo.config.schema import ModelConfig
from evo_hpo.policy.adapters import LoraShape, Router, adapter_shapes, initialise, initialise_member, target_modules
from evo_hpo.policy.base import Base
from evo_hpo.policy.blocks import BaseBlock, Block
from evo_hpo.policy.noise import key
from evo_hpo.policy.sampling import Sampling, logprob_and_entropy, processed_logits

Role = Literal["policy", "reference", "critic"]
HEAD_WEIGHT, HEAD_BIAS = "value_head.weight", "value_head.bias"


class Policy:
    """N members on a frozen base (or one that is the base itself): stacked adapters, a reference, maybe a critic.

    Attributes:
        block: what is trained, [N, P].
        reference: frozen start adapters [N, P]; None means the base with adapters off.
        critic: a second block of adapters with a linear head per member (a critic, or a scorer in training), or None.
        slots: number of each member in the whole population; its random numbers depend on nothing else.
    """

    def __init__(
        self,
        base: Base,
        config: ModelConfig,
        members: int,
        seed: int,
        slots: Sequence[int] | None = None,
        logit_chunk: int = 4096,
    ) -> None:
        self.base, self.config, self.seed = base, config, seed
        self.slots = list(range(members)) if slots is None else list(slots)
        self.logit_chunk = logit_chunk
        self.router = Router()
        self.reference: Block | None = None
        self.critic: Block | None = None
        self.hooked: set[str] = set()
        self.lora = LoraShape(config.lora.rank, config.lora.alpha)
        self.targets = target_modules(base.model, config.lora.target_modules, base.model.get_output_embeddings())
        if config.train == "base":
            if members != 1:
                raise ValueError(
                    "model.train=base trains the one base itself; write evolution=none, or model.train=adapters"
                )
            self.block: Block = BaseBlock(base.model, base.device)
            return
        for name in self.targets:
            self.hook(name)
        self.block = Block(adapter_shapes(self.targets, self.lora.rank), members, base.device)
        initialise(self.block, [key(seed, "adapter", slot) % 2**63 for slot in self.slots])

    @property
    def members(self) -> int:
        return self.block.members

    def freeze_reference(self) -> None:
        """Make the present adapters the reference, so that KL is 0 from here on (after a warm start)."""
        if self.config.train == "base":
            return
        self.reference = Block(self.block.shapes, self.members, self.base.device)
        self.reference.load(self.block.data)
        for view in self.reference.views.values():
            view.requires_grad_(False)

    def add_critic(self) -> None:
        """Give every member a fresh critic: adapters that change nothing yet and a head that says 0."""
        if self.config.train == "base":
            raise ValueError("a critic is an adapter on the frozen base; write model.train=adapters, or algorithm=grpo")
        shapes = adapter_shapes(self.targets, self.lora.rank)
        width = self.base.model.get_output_embeddings().weight.shape[-1]
        shapes[HEAD_WEIGHT], shapes[HEAD_BIAS] = (width,), (1,)
        self.critic = Block(shapes, self.members, self.base.device)
        initialise(self.critic, [key(self.seed, "critic", slot) % 2**63 for slot in self.slots])

    def part(self, members: Sequence[int]) -> Policy:
        """A population of copies of some members, on the same base; without a critic."""
        index = torch.tensor(list(members), device=self.base.device)
        part = copy.copy(self)
        part.slots = [self.slots[m] for m in members]
        part.block = self.block.rows(index)
        part.reference = None if self.reference is None else self.reference.rows(index)
        part.critic = None
        return part

    def gather(self, parent_M: Tensor, slots: Sequence[int] | None = None) -> None:
        """Row i of every block becomes what row parent_M[i] was.

        Args:
            parent_M: [M] rows; M may be smaller than the population, which then shrinks.
            slots: [M] which slot each member fills from now on; None: those of before.
        """
        for block in (self.block, self.reference, self.critic):
            if block is not None:
                block.gather(parent_M)
        if slots is not None:
            self.slots = list(slots)

    def restart(self, member: int, purpose: int) -> None:
        """Put a member back to where its reference is (else to fresh adapters), with a critic that knows nothing.

        Args:
            purpose: makes the fresh numbers differ from those of another restart.
        """
        slot = self.slots[member]
        fresh = [key(self.seed, name, slot, purpose) % 2**63 for name in ("adapter", "critic")]
        for block, seed in ((self.block, fresh[0]), (self.critic, fresh[1])):
            if block is not None:
                initialise_member(block, member, seed)
        if self.reference is not None:
            with torch.no_grad():
                self.block.data[member] = self.reference.data[member]

    @contextmanager
    def acting(self, role: Role) -> Iterator[None]:
        """Within: forward passes (and backward passes that recompute) use the adapters of `role`."""
        block = {"policy": self.block, "reference": self.reference, "critic": self.critic}[role]
        if isinstance(block, BaseBlock):
            block = None
        with self.router.use(block, self.lora.scale):
            yield

    def logprobs(
        self, ids_RT: Tensor, mask_RT: Tensor, sampling: Sampling, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of the distribution that was sampled from, at the trained tokens.

        To be called within `acting`. Logits exist only for trained tokens, `logit_chunk` of them at a time.

        Args:
            ids_RT: [R, T] rows, member-major, padded on the right with any id.
            mask_RT: [R, T] bool, trained tokens.
            sampling: settings per row, [R].
            entropy_gradient: whether the entropy takes part in a loss.
        Returns:
            [R, T] log-probabilities and [R, T] entropies in nats; 0 where not trained.
        """
        hidden_PH, row_P = self._before(ids_RT, mask_RT)
        token_P = ids_RT[mask_RT]
        settings = sampling.rows(row_P)
        logprob, entropy = [], []
        for start in range(0, token_P.shape[0], self.logit_chunk):
            part = slice(start, start + self.logit_chunk)
            arguments = (
                hidden_PH[part],
                token_P[part],
                Sampling(*(v[part] for v in _fields(settings))),
                entropy_gradient,
            )
            if torch.is_grad_enabled() and token_P.shape[0] > self.logit_chunk:
                result = checkpoint(self._score, *arguments, use_reentrant=False)
            else:
                result = self._score(*arguments)
            logprob.append(result[0])
            entropy.append(result[1])
        return _scatter(mask_RT, logprob), _scatter(mask_RT, entropy)

    def _score(
        self, hidden_PH: Tensor, token_P: Tensor, settings: Sampling, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        logits = processed_logits(self.base.logits(hidden_PH), settings, always_B=token_P)
        return logprob_and_entropy(logits, token_P, entropy_gradient)

    def values(self, ids_RT: Tensor, mask_RT: Tensor) -> Tensor:
        """[R, T] the critic's value, in reward units, of the context before each trained token; 0 elsewhere.

        To be called within `acting("critic")`.
        """
        if self.critic is None:
            raise ValueError("this population has no critic; its algorithm must have one")
        if self.base.head is None:
            raise ValueError(
                "a critic needs hidden states, which this model does not give apart from its logits; use algorithm=grpo"
            )
        hidden_PH, row_P = self._before(ids_RT, mask_RT)
        return _scatter(mask_RT, [headed(self.critic, hidden_PH, row_P, ids_RT.shape[0])])

    def scores(self, ids_RT: Tensor, at_RT: Tensor) -> Tensor:
        """[R, T] what the critic's head says of the context up to and including the tokens at `at_RT`; 0 elsewhere.

        To be called within `acting("critic")`.
        """
        if self.critic is None or self.base.head is None:
            raise ValueError("a scorer needs a head on hidden states, which this model does not give; use model=tiny")
        row_P = at_RT.nonzero()[:, 0]
        return _scatter(at_RT, [headed(self.critic, self.base.hidden(ids_RT)[at_RT], row_P, ids_RT.shape[0])])

    def hook(self, name: str) -> None:
        """Let the linear module `name` take part in adapters, where it does not yet (those of a stored scorer)."""
        if name not in self.hooked:
            self.hooked.add(name)
            self.base.model.get_submodule(name).register_forward_hook(self.router.hook(name))

    def _before(self, ids_RT: Tensor, mask_RT: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden state [P, H] from which each trained token is predicted, and its row [P]."""
        if bool(mask_RT[:, 0].any()):
            raise ValueError(
                "the first token of a row has nothing before it to be predicted from, so it cannot be trained"
            )
        hidden_RTH = self.base.hidden(ids_RT)
        predicts_RT = torch.nn.functional.pad(mask_RT[:, 1:], (0, 1))
        return hidden_RTH[predicts_RT], mask_RT.nonzero()[:, 0]


def headed(block: Block, hidden_PH: Tensor, row_P: Tensor, rows: int) -> Tensor:
    """[P] what the linear heads of `block` say of hidden states in `rows` member-major rows."""
    member_P = (row_P // (rows // block.members)).to(hidden_PH.device)
    weight, bias = block.views[HEAD_WEIGHT], block.views[HEAD_BIAS]
    return (hidden_PH.float() * weight[member_P]).sum(1) + bias[member_P].squeeze(1)


def _fields(settings: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    return settings.temperature, settings.top_k, settings.top_p


def _scatter(mask_RT: Tensor, parts: list[Tensor]) -> Tensor:
    values = torch.cat(parts) if parts else torch.zeros(0, device=mask_RT.device)
    return torch.zeros(mask_RT.shape, dtype=values.dtype, device=values.device).masked_scatter(mask_RT, values)
