"""peft's adapter folders: how a member leaves the population, and how one can start it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig as PeftConfig
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from evo_hpo.policy.blocks import BaseBlock, Block
from evo_hpo.policy.policy import Policy

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."


def export(policy: Policy, member: int, folder: Path) -> None:
    """Write one member as a folder: a peft adapter, or the whole model where the base itself was trained.

    `PeftModel.from_pretrained(base, folder)` then gives the member's logits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(policy.block, BaseBlock):
        policy.base.model.save_pretrained(folder)
        policy.base.tokenizer.save_pretrained(folder)
        return
    write_adapter(policy, policy.block, member, folder)


def write_adapter(policy: Policy, block: Block, member: int, folder: Path) -> None:
    """Write the adapters of one member of `block` in peft's format; a head on them is left out."""
    tensors: dict[str, Tensor] = {}
    for name, value in block.of_member(member).items():
        module, _, side = name.rpartition(".")
        if side in ("A", "B"):  # ours multiply from the right, peft's from the left
            tensors[f"{PREFIX}{module}.lora_{side}.weight"] = value.t().contiguous().cpu()
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    conv = any(
        type(module).__name__ == "Conv1D"
        for name, module in policy.base.model.named_modules()
        if name in policy.targets
    )
    config = PeftConfig(
        task_type="CAUSAL_LM",
        r=policy.lora.rank,
        lora_alpha=policy.lora.alpha,  # type: ignore[arg-type]
        target_modules=sorted(policy.targets),
        base_model_name_or_path=policy.config.path,
        inference_mode=True,
        lora_dropout=0.0,
        bias="none",
        fan_in_fan_out=conv,
    )
    config.save_pretrained(str(folder))


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter as it lies on disk."""

    rank: int
    scale: float
    weights: dict[str, Tensor]  # `<module>.A` [in, rank] and `<module>.B` [rank, out], as in a `Block`


def read_adapter(key: str, path: str) -> Adapter:
    """The adapter in the folder `path`.

    Args:
        key: of the config that names the folder, for the sentences.
    Raises:
        ValueError: no such folder, or an adapter of another kind; the message says what is wrong.
    """
    folder = Path(path).expanduser()
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"{key}={path} is no adapter folder: it needs {CONFIG} and {WEIGHTS}")
    try:
        config = json.loads((folder / CONFIG).read_text())
        given = load_file(folder / WEIGHTS)
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ValueError(
            f"{key}={path} cannot be read ({type(error).__name__}: {error}); write the folder of a LoRA "
            "adapter that peft or `python -m evo_hpo export` has made"
        ) from error
    if (
        config.get("peft_type") != "LORA"
        or config.get("use_dora")
        or config.get("rank_pattern")
        or config.get("alpha_pattern")
    ):
        raise ValueError(f"{key}={path} is not a plain LoRA adapter (one rank, no DoRA); start from another one")
    weights = {}
    for name, tensor in given.items():
        module, _, side = name.removeprefix(PREFIX).removesuffix(".weight").rpartition(".lora_")
        weights[f"{module}.{side}"] = tensor.t()
    return Adapter(rank, alpha / (rank**0.5 if config.get("use_rslora") else rank), weights)


@torch.no_grad()
def start_from(policy: Policy, path: str) -> None:
    """Fill every member with the adapter in the folder `path`, and make it the reference.

    Raises:
        ValueError: no such folder, or an adapter of another shape, kind or target; the message says what differs.
    """
    adapter = read_adapter("model.lora.start", path)
    if isinstance(policy.block, BaseBlock):
        raise ValueError("model.lora.start is an adapter, and model.train=base trains none; write model.train=adapters")
    rank, scale = adapter.rank, adapter.scale
    if rank != policy.lora.rank or abs(scale - policy.lora.scale) > 1e-9:
        raise ValueError(
            f"model.lora.start={path} has rank {rank} and scale {scale:g}, and the config asks for rank "
            f"{policy.lora.rank} and scale {policy.lora.scale:g}; "
            f"write model.lora.rank={rank} model.lora.alpha={scale * rank:g}"
        )
    ours, theirs = policy.block.views, adapter.weights
    if theirs.keys() != ours.keys():
        modules = sorted({name.rpartition(".")[0].rpartition(".")[2] for name in theirs})
        raise ValueError(
            f"model.lora.start={path} adapts other modules than the config; "
            f"write model.lora.target_modules=[{','.join(modules)}] (and the model it was trained on)"
        )
    for name, view in ours.items():
        if theirs[name].shape != view.shape[1:]:
            raise ValueError(f"model.lora.start={path} does not fit this model: {name} is {tuple(theirs[name].shape)}")
        view.data.copy_(theirs[name].to(view.dtype).expand_as(view))
    policy.freeze_reference()
