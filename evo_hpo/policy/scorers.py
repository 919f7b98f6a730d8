"""Stored scorers: an adapter with a linear head, and the base it belongs to. What rewards ask of the run's model."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from envs.core import Episode
from evo_hpo.policy.blocks import BaseBlock, Block
from evo_hpo.policy.exchange import read_adapter, write_adapter
from evo_hpo.policy.policy import HEAD_BIAS, HEAD_WEIGHT, Policy, headed
from evo_hpo.policy.sampling import Sampling

HEAD, ABOUT = "head.safetensors", "scorer.json"
SAMPLE = 4096  # numbers of each weight that the fingerprint of a base looks at
Row = tuple[list[int], list[int]]  # token ids, and the positions that are asked about


def fingerprint(policy: Policy) -> str:
    """Equal iff the frozen base is the same model, whatever precision it is loaded in."""
    digest = hashlib.sha256()
    for name, parameter in sorted(policy.base.model.named_parameters()):
        digest.update(f"{name}{tuple(parameter.shape)}".encode())
        part = parameter.detach().reshape(-1)[:SAMPLE].to(torch.bfloat16).cpu()
        digest.update(part.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def export_scorer(policy: Policy, member: int, folder: Path, about: dict[str, Any]) -> None:
    """Write the scorer of one member: a peft adapter, a head, and what is known about it.

    Args:
        about: `kind` (the algorithm that trained it), `mean` and `std` of its scores, and how good it was.
    """
    assert policy.critic is not None
    folder.mkdir(parents=True, exist_ok=True)
    write_adapter(policy, policy.critic, member, folder)
    own = policy.critic.of_member(member)
    save_file({"weight": own[HEAD_WEIGHT].cpu(), "bias": own[HEAD_BIAS].cpu()}, folder / HEAD)
    described = about | {"base": fingerprint(policy), "model": policy.config.path}
    (folder / ABOUT).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


class StoredScorer:
    """A scorer on the run's frozen base; the same for every member."""

    def __init__(self, models: BaseModels, block: Block, scale: float, about: dict[str, Any]) -> None:
        self.models, self.block, self.scale, self.about = models, block, scale, about

    def __call__(self, episodes: Sequence[Episode]) -> list[list[float]]:
        """[turns] the score of each episode after each of its turns."""

        def of(ids_RT: Tensor, at_RT: Tensor) -> Tensor:
            policy = self.models.policy
            with policy.router.use(self.block, self.scale):
                return headed(self.block, policy.base.hidden(ids_RT)[at_RT], at_RT.nonzero()[:, 0], ids_RT.shape[0])

        rows = []
        for episode in episodes:
            ids, ends = [], []
            for turn in episode.turns:
                ids += turn.observation_ids + turn.action_ids
                ends.append(len(ids) - 1)
            rows.append((ids, ends))
        return self.models.asked(rows, of)


def _warn_of_chance(path: str, about: dict[str, Any]) -> None:
    """Say it on stderr where a scorer was not shown to be better than a coin."""
    lows = [part["low"] for part in about.values() if isinstance(part, dict) and isinstance(part.get("low"), float)]
    if lows and lows[0] <= 0.5:
        print(
            f"warning: the scorer in {path} was not shown to order held-out pairs better than chance "
            f"(95 % interval from {lows[0]:.3f}); train it longer, or on more",
            file=sys.stderr,
        )


class BaseModels:
    """The run's base, for rewards (`rewards.core.Models`)."""

    def __init__(self, policy: Policy, micro_tokens: int) -> None:
        self.policy, self.micro_tokens = policy, micro_tokens

    def scorer(self, path: str, kind: str) -> StoredScorer:
        """See `rewards.core.Models`."""
        policy, folder = self.policy, Path(path).expanduser()
        if isinstance(policy.block, BaseBlock):
            raise ValueError(
                "reward.path is a head on a frozen base, and model.train=base moves it; write model.train=adapters"
            )
        adapter = read_adapter("reward.path", path)
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            head = load_file(folder / HEAD)
            weights = adapter.weights | {HEAD_WEIGHT: head["weight"], HEAD_BIAS: head["bias"]}
            found, base = str(about["kind"]), str(about["base"])
            about["mean"], about["std"] = float(about["mean"]), float(about["std"])
            if not (math.isfinite(about["mean"]) and 0 < about["std"] < math.inf):
                raise ValueError(f"its scores have mean {about['mean']:g} and spread {about['std']:g}")
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise ValueError(
                f"reward.path={path} is no scorer ({type(error).__name__}: {error}); write the folder `best` of a run "
                f"with algorithm={kind}"
            ) from error
        if found != kind:
            raise ValueError(f"reward.path={path} was trained with algorithm={found}; train one with algorithm={kind}")
        if base != fingerprint(policy):
            raise ValueError(
                f"reward.path={path} belongs to another base (it was trained on model.path={about.get('model')}, and "
                f"this run has model.path={policy.config.path}); train one on this base with algorithm={kind}"
            )
        width = policy.base.model.get_output_embeddings().weight.shape[-1]
        if weights[HEAD_WEIGHT].shape != (width,) or weights[HEAD_BIAS].shape != (1,):
            raise ValueError(f"reward.path={path} has a head that is not of this base's width {width}; train it again")
        _warn_of_chance(path, about)
        block = Block({name: tuple(tensor.shape) for name, tensor in weights.items()}, 1, policy.base.device)
        with torch.no_grad():
            for name, view in block.views.items():
                view.copy_(weights[name])
                view.requires_grad_(False)
        if not block.data.isfinite().all():
            raise ValueError(f"reward.path={path} holds numbers that are not finite; train it again")
        for name in {name.rpartition(".")[0] for name in adapter.weights}:
            policy.hook(name)
        return StoredScorer(self, block, adapter.scale, about)

    def answer_logprobs(self, episodes: Sequence[Episode]) -> list[list[float]]:
        """See `rewards.core.Models`."""
        policy, rows = self.policy, list[Row]()
        for episode in episodes:
            assert episode.answer is not None
            answer, before = policy.base.chat.action(episode.answer), list[int]()
            for turn in episode.turns:
                before = before + turn.observation_ids
                rows.append((before + answer, list(range(len(before), len(before) + len(answer)))))
                before = before + turn.action_ids

        def of(ids_RT: Tensor, at_RT: Tensor) -> Tensor:
            with policy.router.use(None, 1.0):
                return policy.logprobs(ids_RT, at_RT, Sampling.same(len(ids_RT), 1.0))[0][at_RT]

        told = iter(self.asked(rows, of))
        return [[fmean(next(told)) for _ in episode.turns] for episode in episodes]

    @torch.no_grad()
    def asked(self, rows: Sequence[Row], of: Callable[[Tensor, Tensor], Tensor]) -> list[list[float]]:
        """For every row, what `of` says at its positions; longest rows first, `micro_tokens` tokens at a time.

        Args:
            of: [R, T] ids, [R, T] bool positions -> [P] numbers, row by row.
        """
        found: list[list[float]] = [[] for _ in rows]
        device = self.policy.base.device
        for part in self._parts(rows):
            width = len(rows[part[0]][0])
            ids_RT = torch.zeros(len(part), width, dtype=torch.int64)
            at_RT = torch.zeros(len(part), width, dtype=torch.bool)
            for r, index in enumerate(part):
                ids, positions = rows[index]
                ids_RT[r, : len(ids)] = torch.tensor(ids)
                at_RT[r, positions] = True
            numbers = iter(of(ids_RT.to(device), at_RT.to(device)).tolist())
            for index in part:
                found[index] = [next(numbers) for _ in rows[index][1]]
        return found

    def _parts(self, rows: Sequence[Row]) -> Iterator[list[int]]:
        order = sorted((i for i in range(len(rows)) if rows[i][1]), key=lambda i: len(rows[i][0]), reverse=True)
        while order:
            count = max(1, self.micro_tokens // len(rows[order[0]][0]))
            yield order[:count]
            order = order[count:]
