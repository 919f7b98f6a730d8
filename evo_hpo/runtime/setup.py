"""From a config to the things that run: device, base, population, learner. Shared by a run, `export` and `play`."""

from __future__ import annotations

import torch

from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config
from evo_hpo.policy.base import load_base
from evo_hpo.policy.exchange import start_from
from evo_hpo.policy.policy import Policy
from evo_hpo.runtime.processes import Processes


def processes_of(config: Config) -> Processes:
    """Start (or join) the processes and choose the device.

    Raises:
        UserError: a GPU is asked for and there is none.
    """
    cpu = config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available())
    if not cpu and not torch.cuda.is_available():
        raise UserError(f"device={config.device} asks for a GPU and torch sees none; write device=auto or device=cpu")
    if config.threads:
        torch.set_num_threads(config.threads)
    processes = Processes(cpu)
    if config.device not in ("auto", "cpu", "cuda"):
        processes.device = torch.device(config.device)
    return processes


def dtype_of(config: Config, device: torch.device) -> torch.dtype:
    """Numbers of the frozen base; adapters, optimiser and losses are float32 always."""
    if config.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and config.model.train == "adapters" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[config.precision]


def population_of(
    config: Config, device: torch.device, members: int | None = None, slots: list[int] | None = None
) -> Policy:
    """The base with fresh members on it (or members that start from `model.lora.start`).

    Raises:
        UserError: the model or the start adapter cannot be loaded, or has not the modules that are named.
    """
    members = config.evolution.population if members is None else members
    try:
        base = load_base(config.model, device, dtype_of(config, device), config.seed)
        policy = Policy(base, config.model, members, config.seed, slots, config.learner.logit_chunk)
        if config.model.lora.start is not None:
            start_from(policy, config.model.lora.start)
    except ValueError as error:
        raise UserError(str(error)) from error
    return policy
