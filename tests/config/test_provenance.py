"""Every value of a run can be traced to the file or the override that set it, and no secret is written down."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from evo_hpo.config.provenance import leaves, write
from tests.config.support import coin, loaded, plugins_on_path, write_yaml

GLOBAL = "# @package _global_\n"


def test_every_value_names_its_source() -> None:
    _, composed = loaded("seed=3", "algorithm=ppo", "algorithm.kl.coef=0.1")
    source = composed.provenance
    assert source["seed"] == "override seed=3"
    assert source["algorithm.kl.coef"] == "override algorithm.kl.coef=0.1"
    assert source["algorithm.kl.estimator"] == "conf/algorithm/grpo.yaml"
    assert source["algorithm.aggregation"] == "conf/algorithm/ppo.yaml"
    assert source["algorithm.optimizer.beta1"] == "conf/algorithm/optimizer/adamw.yaml"
    assert source["model.path"] == "conf/model/tiny.yaml"
    assert source["model.lora.rank"] == "conf/model/hf.yaml"
    assert source["evolution.population"] == "conf/evolution/none.yaml"
    assert source["device"] == "conf/config.yaml"
    assert source["pipeline.stages.train.algorithm.kl.coef"] == "conf/pipeline/single.yaml (${algorithm})"


def test_there_is_one_source_per_value_and_no_other() -> None:
    _, composed = loaded("evolution=truncation", "pipeline=sft_then_grpo", "env=mixture")
    assert set(composed.provenance) == {key for key, _ in leaves(composed.values)}
    assert "unknown" not in composed.provenance.values()


def test_a_file_that_only_chooses_groups_takes_nothing_from_the_files_it_chooses() -> None:
    _, composed = loaded("algorithm=gdpo", "algorithm.kl.coef=0.1", "algorithm.advantage.weights={}")
    assert composed.provenance["algorithm.advantage.weights.success"] == "conf/algorithm/advantage/decoupled.yaml"
    assert composed.provenance["algorithm.kl.estimator"] == "conf/algorithm/grpo.yaml"
    assert "unknown" not in composed.provenance.values()


def test_an_experiment_file_overrules_the_groups_and_an_override_overrules_it(tmp_path: Path) -> None:
    write_yaml(tmp_path, "experiment/mine", f"{GLOBAL}seed: 7\nrollout:\n  tasks: 9\n  group_size: 5\n")
    _, composed = loaded("experiment=mine", "rollout.tasks=3", extra=tmp_path)
    assert composed.provenance["seed"] == f"{tmp_path}/experiment/mine.yaml"
    assert composed.provenance["rollout.group_size"] == f"{tmp_path}/experiment/mine.yaml"
    assert composed.provenance["rollout.tasks"] == "override rollout.tasks=3"
    assert composed.values["rollout"]["tasks"] == 3


def test_a_sweep_is_named_where_it_lies() -> None:
    _, composed = loaded("sweep=guess_number_rloo", "evolution=tournament")
    assert composed.provenance["reward.turn_penalty"] == "sweeps/guess_number_rloo.yaml"
    assert composed.provenance["algorithm.aggregation"] == "conf/algorithm/rloo.yaml"


def test_both_files_are_written_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "verysecretvalue")
    with plugins_on_path():
        _, composed = loaded(*coin(token="abcdefgh"), "name=run-verysecretvalue")
    write(tmp_path, composed.values, composed.provenance)
    text = "".join(file.read_text() for file in tmp_path.iterdir())
    assert "abcdefgh" not in text and "verysecretvalue" not in text
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["rollout"] == composed.values["rollout"]
    source = yaml.safe_load((tmp_path / "provenance.yaml").read_text())
    assert source["rollout.tasks"] == "conf/rollout/default.yaml"
