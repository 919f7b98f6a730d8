"""Unknown keys, wrong types and values out of range are refused before anything is loaded, with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.support import loaded, refusals, write_yaml

GLOBAL = "# @package _global_\n"


def test_an_unknown_key_names_its_nearest_legal_one() -> None:
    assert refusals("algorithm.kl.coeff=1") == [
        "there is no key 'algorithm.kl.coeff' (override algorithm.kl.coeff=1); did you mean algorithm.kl.coef?"
    ]


def test_a_key_at_the_wrong_place_or_abbreviated_is_found_elsewhere() -> None:
    assert refusals("group_size=2")[0].endswith("did you mean rollout.group_size?")
    assert refusals("lr=1")[0].endswith("did you mean algorithm.optimizer.learning_rate?")


def test_an_unknown_key_from_an_experiment_file_names_the_file(tmp_path: Path) -> None:
    write_yaml(tmp_path, "experiment/typo", f"{GLOBAL}rollout:\n  group_sise: 2\n")
    [sentence] = refusals("experiment=typo", extra=tmp_path)
    assert sentence == (
        f"there is no key 'rollout.group_sise' ({tmp_path}/experiment/typo.yaml); did you mean rollout.group_size?"
    )


@pytest.mark.parametrize("override", ["+foo=1", "++foo=1", "+rollout.foo=1", "+algorithm.kl.foo=1", "+env.foo=1"])
def test_a_key_cannot_be_added(override: str) -> None:
    [sentence] = refusals(override)
    key = override.lstrip("+").partition("=")[0]
    assert sentence.startswith(f"there is no key '{key}' (override {override})")


def test_adding_a_key_that_exists_is_explained() -> None:
    assert refusals("+seed=1") == ["seed is there already; write seed=1"]


def test_adding_a_part_to_a_group_that_has_a_choice_is_explained() -> None:
    assert refusals("+algorithm/correction=truncated_is") == [
        "algorithm/correction is chosen already; write algorithm/correction=truncated_is, without the +"
    ]


@pytest.mark.parametrize(
    ("override", "absent"),
    [
        ("algorithm.advantage.weights={tone: 1}", "tone"),
        ("evolution.space={algorithm.optimizer.learning_rate: {low: 1e-5}}", "algorithm.optimizer.learning_rate"),
        ("algorithm.kl={coef: 0.1, targett: 1}", "targett"),
        ("algorithm.advantage={normalisation: {flor: 1}}", "normalisation.flor"),
    ],
)
def test_a_mapping_with_a_key_that_is_not_there_is_explained(override: str, absent: str) -> None:
    key = override.partition("=")[0]
    assert refusals("algorithm=gdpo", "evolution=none", override) == [
        f"{key} has no key '{absent}'; to add it write ++{key}={{…}}"
    ]


def test_what_is_advised_for_a_mapping_works() -> None:
    config, _ = loaded(
        "evolution=truncation", "++evolution.space.algorithm.kl.coef={low: 1e-4, high: 1, relative: false}"
    )
    assert config.evolution.space["algorithm.kl.coef"].high == 1
    [sentence] = refusals("++algorithm.kl={targett: 1}")
    assert "did you mean algorithm.kl.target?" in sentence


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("algorithm.optimizer.learning_rate=abc", "algorithm.optimizer.learning_rate must be a number, not 'abc'"),
        ("algorithm.kl.coef=None", "algorithm.kl.coef must be a number, not 'None'; nothing is written null"),
        ("algorithm.kl.coef=true", "algorithm.kl.coef must be a number, not True"),
        ("algorithm.kl.coef=nan", "algorithm.kl.coef must be a finite number"),
        ("algorithm.optimizer.learning_rate=inf", "algorithm.optimizer.learning_rate must be a finite number"),
        ("rollout.temperature=nan", "rollout.temperature must be a finite number"),
        ("rollout.temperature='-inf'", "rollout.temperature must be a finite number"),
        ("rollout.tasks=2.5", "rollout.tasks must be a whole number, not 2.5"),
        ("rollout.tasks=true", "rollout.tasks must be a whole number, not True"),
        ("rollout.tasks=null", "rollout.tasks must be a whole number, not None"),
        ("rollout.tasks=[1]", "rollout.tasks must be a whole number, not [1]"),
        ("rollout.tasks=0", "rollout.tasks must be greater than 0, not 0"),
        ("rollout.top_p=1.5", "rollout.top_p must be at most 1, not 1.5"),
        ("rollout.top_k=-1", "rollout.top_k must be at least 0, not -1"),
        ("evaluation.held_out=1", "evaluation.held_out must be less than 1, not 1"),
        ("tracker.report=1", "tracker.report must be true or false, not 1"),
        ("tracker.report='yes'", "tracker.report must be true or false, not 'yes'"),
        ("name=3", "name must be text, not 3; quote it"),
        ("precision=float23", "precision must be one of auto, float32, bfloat16, not 'float23'; did you mean float32?"),
        ("model.lora.target_modules=[]", "model.lora.target_modules must have at least 1 entries"),
        ("model.lora.target_modules=q_proj", "model.lora.target_modules must be a list, not 'q_proj'"),
        ("rollout=null", "rollout=null chooses nothing; choose one of default, or leave it out"),
        ("model.lora=null", "model.lora must be a mapping with the keys of LoraConfig, not None"),
        ("evolution.strategy=null", "evolution.strategy must be a mapping with a `_target_`, not None"),
        ("env.size=40", "env: frozen_lake: size is 40; write a number of cells from 2 to 12 (override env.size=40)"),
        ("~rollout.tasks", "rollout.tasks is needed"),
        ("~algorithm.kl.coef", "algorithm.kl.coef is needed"),
    ],
)
def test_a_wrong_value_is_refused(override: str, sentence: str) -> None:
    [found] = refusals(override)
    assert found.startswith(sentence)


def test_a_wrong_value_names_where_it_was_written(tmp_path: Path) -> None:
    write_yaml(tmp_path, "experiment/wrong", f"{GLOBAL}rollout:\n  tasks: many\nalgorithm:\n  kl:\n    coef: high\n")
    file = f"({tmp_path}/experiment/wrong.yaml)"
    assert refusals("experiment=wrong", extra=tmp_path) == [
        f"algorithm.kl.coef must be a number, not 'high' {file}",
        f"rollout.tasks must be a whole number, not 'many' {file}",
    ]


def test_a_flag_where_yaml_swallowed_a_word_says_so(tmp_path: Path) -> None:
    write_yaml(tmp_path, "experiment/quiet", f"{GLOBAL}tracker:\n  console: off\n")
    [sentence] = refusals("experiment=quiet", extra=tmp_path)
    assert "tracker.console must be one of auto, live, lines, off, not False" in sentence
    assert "quote them" in sentence


def test_whole_numbers_and_numbers_in_quotes_are_floats(tmp_path: Path) -> None:
    write_yaml(tmp_path, "experiment/number", f"{GLOBAL}algorithm:\n  optimizer:\n    learning_rate: '1e-3'\n")
    config, _ = loaded("rollout.temperature=2", "experiment=number", extra=tmp_path)
    assert config.rollout.temperature == 2.0 and isinstance(config.rollout.temperature, float)
    assert config.algorithm.optimizer.learning_rate == 1e-3


def test_all_problems_are_reported_together() -> None:
    sentences = refusals("rollout.tasks=0", "algorithm.kl.coef=abc", "+foo=1", "model=hf", "env.size=99")
    firsts = {sentence.split()[0] for sentence in sentences}
    assert firsts == {"model.path", "algorithm.kl.coef", "env:", "there", "rollout.tasks"}


def test_a_value_used_by_reference_is_reported_once() -> None:
    assert len(refusals("algorithm.kl.coef=abc", "pipeline=single")) == 1


def test_a_missing_value_is_asked_for_in_the_words_of_its_file() -> None:
    assert refusals("model=hf") == ["model.path is needed: write model.path=<folder or hub name>"]


def test_an_unknown_option_lists_what_there_is() -> None:
    [sentence] = refusals("algorithm=gpro")
    assert sentence.startswith("there is no algorithm 'gpro'; did you mean grpo? there are: ")
    assert {"grpo", "ppo", "sft"} <= set(sentence.partition("there are: ")[2].split(", "))
    assert refusals("experiment=nonsense")[0].startswith("there is no experiment 'nonsense'; there are: ")
    assert refusals("algorithm/advantage=group_relatve")[0].startswith(
        "there is no algorithm/advantage 'group_relatve'; did you mean group_relative?"
    )


def test_a_part_that_the_chosen_option_does_not_have_is_refused() -> None:
    assert refusals("evolution=none", "evolution/space=default") == [
        "evolution/space cannot be chosen here: nothing that is chosen has such a part; choose another evolution"
    ]


def test_a_file_that_selects_a_missing_option_is_named(tmp_path: Path) -> None:
    write_yaml(tmp_path, "experiment/lost", f"{GLOBAL}defaults:\n  - override /env: frozen_lak\n")
    [sentence] = refusals("experiment=lost", extra=tmp_path)
    assert "there is no env 'frozen_lak'; did you mean frozen_lake?" in sentence


def test_several_values_without_multirun_are_explained() -> None:
    assert refusals("algorithm=grpo,ppo") == [
        "'algorithm=grpo,ppo' holds several values: add -m to run each of them, or choose one"
    ]
    assert refusals("seed=1,2") == [
        "'seed=1,2' holds several values: add -m to run each of them, or write seed=[1,2] for a list"
    ]


def test_an_override_that_cannot_be_read_is_explained() -> None:
    assert refusals("seed") == ["cannot read 'seed': overrides are written key=value"]
    assert refusals("name=a=b")[0].startswith("cannot read the override 'name=a=b'")


def test_a_broken_yaml_file_is_named_with_its_line(tmp_path: Path) -> None:
    write_yaml(tmp_path, "experiment/broken", f"{GLOBAL}rollout:\n  tasks: [1\n")
    [sentence] = refusals("experiment=broken", extra=tmp_path)
    assert "experiment/broken.yaml, line" in sentence


def test_a_reference_to_nothing_names_both_keys() -> None:
    [sentence] = refusals("name=${nowhere}")
    assert sentence.startswith("name refers to a key that does not exist") and "nowhere" in sentence


def test_a_secret_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "verysecretvalue")
    sentences = refusals("+wandb_api_key=abcdefgh", "rollout.tasks=${oc.env:SOME_API_KEY}", "device=verysecretvalue")
    assert len(sentences) == 2
    assert not any(secret in sentence for sentence in sentences for secret in ("abcdefgh", "verysecretvalue"))


def test_a_preset_with_another_part_says_where_to_start() -> None:
    sentences = refusals("algorithm=dapo", "algorithm/objective=cispo")
    assert any(
        "algorithm.objective.clip_high" in sentence
        and sentence.endswith("the part that it has itself: start from algorithm=grpo or ppo to choose parts")
        for sentence in sentences
    )


def test_a_group_written_as_a_key_is_pointed_to_the_group() -> None:
    assert refusals("algorithm.correction=icepop") == [
        "algorithm.correction is chosen as a whole: write algorithm/correction=… instead of algorithm.correction=icepop"
    ]


def test_a_value_that_several_places_take_from_one_is_asked_for_once() -> None:
    [sentence] = refusals("algorithm=reward_model", "granularity=sparse")
    assert sentence.startswith("algorithm.data is needed: write algorithm.data=<")


def test_a_key_of_another_option_names_that_option() -> None:
    [sentence] = refusals("evolution=truncation", "evolution.strategy.size=3")
    assert sentence == (
        "there is no key 'evolution.strategy.size' with the evolution that is chosen (override "
        "evolution.strategy.size=3); it belongs to evolution=tournament"
    )
