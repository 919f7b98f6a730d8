"""Whatever a model folder, an adapter, a checkpoint or a config contains: no code comes out of it, only a sentence."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from evo_hpo.cli.main import main
from evo_hpo.config.errors import ConfigError, UserError
from evo_hpo.policy.base import TINY
from evo_hpo.policy.exchange import export, start_from
from evo_hpo.runtime.checkpoints import Checkpoint, CheckpointError, Checkpoints
from evo_hpo.runtime.resuming import refuse_foreign
from tests.building import base_of, config, policy_of


class Evil:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def fit_checksums(folder: Path) -> None:
    names = ("tensors.safetensors", "state.json")
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "manifest.json").write_text(json.dumps(digests))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def test_weights_that_are_a_pickle_are_refused_unread(model: Path, tmp_path: Path) -> None:
    weights = model / "model.safetensors"
    torch.save(load_file(weights) | {"evil": Evil(tmp_path / "mark")}, model / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ValueError, match=r"could not be loaded .*safetensors"):
        base_of(config(f"model.path={model}"))
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("known", [True, False], ids=["an architecture that is known", "one that is not"])
def test_the_own_code_of_a_model_is_neither_run_nor_asked_about(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    (model / "evil.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'mark')!r})\n"
        "from transformers import LlamaConfig as Config, LlamaForCausalLM as Model\n"
    )
    described = json.loads((model / "config.json").read_text())
    described["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    described["model_type"] = described["model_type"] if known else "evil"
    (model / "config.json").write_text(json.dumps(described))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    if known:
        base_of(config(f"model.path={model}"))
    else:
        with pytest.raises(ValueError, match="could not be loaded"):
            base_of(config(f"model.path={model}"))
    assert not (tmp_path / "mark").exists()


def test_a_pickle_in_the_place_of_tensors_is_refused_unread_even_where_its_checksum_fits(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for generation in (1, 2):
        checkpoints.save(generation, {"policy": torch.ones(2)}, {})
    folder = checkpoints.path(2)
    (folder / "tensors.safetensors").write_bytes(pickle.dumps(Evil(tmp_path / "mark")))
    fit_checksums(folder)
    with pytest.raises(CheckpointError, match="generation=1"):
        checkpoints.load()
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("content", ["{not json", "[]"])
def test_a_state_that_cannot_be_read_is_refused_even_where_its_checksum_fits(content: str, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for generation in (1, 2):
        checkpoints.save(generation, {"policy": torch.ones(2)}, {})
    (checkpoints.path(2) / "state.json").write_text(content)
    fit_checksums(checkpoints.path(2))
    with pytest.raises(CheckpointError, match="generation=1"):
        checkpoints.load()


@pytest.mark.parametrize("state", [{}, {"progress": {"other": 1}, "watch": {}, "offsets": {}, "config": {}}])
def test_a_state_of_another_version_is_refused_with_a_sentence(state: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = Checkpoint(2, {}, state)
    with pytest.raises(UserError, match="written by another version"):
        refuse_foreign(checkpoint, tmp_path)


def test_a_refused_model_leaves_no_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    argv = ["run", f"model.path={tmp_path / 'empty'}", f"run_dir={tmp_path / 'runs'}", "device=cpu", "tracker=off"]
    assert main(argv) == 2
    assert "could not be loaded" in capsys.readouterr().err
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("name", "content"),
    [("adapter_model.safetensors", b"garbage"), ("adapter_config.json", b"{"), ("adapter_config.json", b'{"r": 8}')],
)
def test_a_start_adapter_that_cannot_be_read_is_refused_with_a_sentence(
    name: str, content: bytes, tmp_path: Path
) -> None:
    policy = policy_of(config(), 1)
    export(policy, 0, tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"model.lora.start=.* cannot be read .*evo_hpo export"):
        start_from(policy, str(tmp_path))


def test_a_model_whose_weights_are_garbage_is_refused_with_a_sentence(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="could not be loaded"):
        base_of(config(f"model.path={model}"))


def test_a_chat_template_that_is_no_jinja_is_refused_with_a_sentence() -> None:
    settings = config()
    settings = dataclasses.replace(settings, model=dataclasses.replace(settings.model, chat_template="{{ x"))
    with pytest.raises(ValueError, match="chat template cannot be read .*model.chat_template"):
        base_of(settings)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("evolution.space.rollout.temperature.low=-1", "temperature.low must be greater than 0, not -1"),
        ("plugins=[no_such_package]", "plugins names 'no_such_package'"),
        ("name=../elsewhere", "write it without slashes"),
        ("evaluation.final_tasks=100000000", "evaluation.final_tasks must be at most"),
        ("model.lora.rank=100000", "model.lora.rank must be at most"),
    ],
)
def test_what_would_end_badly_is_refused_before_anything_is_loaded(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        config("evolution=truncation", override)
