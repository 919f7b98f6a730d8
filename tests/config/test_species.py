"""Lists of options become species: what each has from birth, what is left out, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.schema import Config
from evo_hpo.config.species import as_one_species, name_of, recorded_spaces, species_of
from rewards.reward_model import RewardModelReward
from tests.config.support import refusals, write_yaml

TWO = "evolution.species.algorithm=[grpo,ppo]"
RATE = "algorithm.optimizer.learning_rate"
CRITIC = "algorithm.critic.optimizer.learning_rate"
OF_CRITIC = f"+evolution.space.{CRITIC}={{type: float, low: 0.1, high: 10, relative: true, log: true"


def loaded(*overrides: str) -> Config:
    composed = compose(overrides)
    return build(composed.values, composed.provenance, composed.choices)


def names(config: Config) -> list[str]:
    return [one.name for one in species_of(config)]


def test_without_lists_there_is_one_species_without_a_name() -> None:
    [only] = species_of(config := loaded())
    assert only.name == "" and only.config is config


def test_every_species_is_the_run_that_its_options_alone_would_make() -> None:
    of_two = {one.name: one.config for one in species_of(loaded(TWO, "algorithm.epochs=3", "evolution=gated"))}
    for name, config in of_two.items():
        alone = loaded(f"algorithm={name}", "algorithm.epochs=3", "evolution=gated")
        assert (config.algorithm, config.reward, config.granularity) == (
            alone.algorithm,
            alone.reward,
            alone.granularity,
        )
        assert config.evolution == alone.evolution and config.pipeline == alone.pipeline
    assert of_two["ppo"].algorithm != of_two["grpo"].algorithm


def test_groups_are_combined_and_the_granularity_reaches_the_algorithm() -> None:
    config = loaded(TWO, "evolution.species.granularity=[mixed,turn]")
    assert names(config) == ["grpo+mixed", "grpo+turn", "ppo+mixed", "ppo+turn"]
    assert [one.config.algorithm.advantage.credit for one in species_of(config)][1::2] == ["turn", "turn"]


def test_relative_ranges_are_those_of_each_species() -> None:
    config = loaded("evolution.species.algorithm=[grpo,dpo]", "evolution=gated")
    rates = [(one.space[RATE].low, one.config.algorithm.optimizer.learning_rate) for one in species_of(config)]
    assert all(low == pytest.approx(0.1 * own) for low, own in rates)


def test_a_condition_leaves_a_key_to_the_species_it_names() -> None:
    config = loaded(TWO, f"{OF_CRITIC}, when: {{algorithm: [ppo]}}}}")
    assert [CRITIC in one.space for one in species_of(config)] == [False, True]
    assert all(one.space[RATE].when is None for one in species_of(config))


def test_a_condition_on_two_groups_asks_for_both() -> None:
    both = f"{OF_CRITIC}, when: {{algorithm: [ppo], granularity: [turn]}}}}"
    config = loaded(TWO, "evolution.species.granularity=[mixed,turn]", both)
    assert [one.name for one in species_of(config) if CRITIC in one.space] == ["ppo+turn"]


@pytest.mark.parametrize(
    ("when", "sentence"),
    [
        ("{granularity: [turn]}", "names granularity, in which the members of this run do not differ"),
        (
            "{env: [coin]}",
            "names env, in which the members of this run do not differ; leave it out, or list options: "
            "evolution.species.algorithm=[…]",
        ),
        ("{parts: [grpo]}", "names parts, in which the members of this run do not differ"),
        ("{algorithm: [dapo]}", "names dapo; choose among grpo, ppo"),
    ],
)
def test_a_condition_on_what_does_not_differ_is_refused(when: str, sentence: str) -> None:
    [told] = refusals(TWO, "evolution=gated", f"{OF_CRITIC}, when: {when}}}")
    assert f"evolution.space.{CRITIC}.when {sentence}" in told


def test_a_combination_that_does_not_go_together_is_left_out_where_its_options_are_in_others() -> None:
    config = loaded("evolution.species.algorithm=[grpo,mt_grpo]", "evolution.species.granularity=[sparse,mixed]")
    assert names(config) == ["grpo+sparse", "grpo+mixed", "mt_grpo+mixed"]


def test_the_runs_own_parts_are_those_of_the_first_species_that_is_not_left_out() -> None:
    lists = ["evolution.species.algorithm=[mt_grpo,grpo]", "evolution.species.granularity=[sparse,turn]"]
    config = loaded(*lists, "evolution.population=3")  # as many as the species that are left
    assert names(config) == ["mt_grpo+turn", "grpo+sparse", "grpo+turn"]
    first = species_of(config)[0].config
    assert (config.algorithm, config.granularity) == (first.algorithm, first.granularity)
    turns = loaded(TWO, "evolution.species.granularity=[turn,mixed]")
    assert turns.algorithm.advantage.credit == "turn"


def test_an_option_that_goes_with_nothing_is_refused_with_the_reason() -> None:
    [told] = refusals("evolution.species.algorithm=[grpo,mt_grpo]", "granularity=sparse")
    assert told.startswith("of evolution.species, algorithm=mt_grpo: stage train learns with TurnRelative")


def test_an_option_that_is_refused_is_called_by_its_own_name() -> None:
    lists = ["evolution.species.granularity=[sparse,mixed]", "granularity=sparse"]
    [told] = refusals("evolution=gated", "env=guess_number", "reward.invalid_penalty=1", *lists)
    assert told.startswith("of evolution.species, granularity=mixed: granularity=mixed lets a failed episode earn as")


def test_the_runs_own_algorithm_need_not_fit_where_no_member_has_it() -> None:
    assert names(loaded("algorithm=mt_grpo", TWO, "granularity=sparse")) == ["grpo", "ppo"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([TWO, "evolution.population=1"], "evolution.population=1 is less than the 2 species grpo, ppo; write"),
        (["evolution.species.algorithm=[grpo,grpo]"], "evolution.species.algorithm names grpo twice"),
        (["evolution.species.algorithm=[grpo,ppo.yaml]"], "algorithm has 'ppo.yaml'; write an option's name alone"),
        (["evolution.species.algorithm=grpo"], "evolution.species.algorithm must be a list"),
        (["evolution.species.algorithm=[]"], "evolution.species.algorithm must have at least 1"),
        (["evolution.species.algorithm=[grpo,pppo]"], "there is no algorithm 'pppo'; did you mean ppo?"),
        (["evolution.species.algorithm=[grpo,sft]"], "sft, which does not learn from what members play"),
        (
            ["evolution.species.algorithm=[grpo,progress_model]"],
            "progress_model, which trains a scorer, so its members",
        ),
        ([TWO, "pipeline=sft_then_grpo"], "species need one stage, and pipeline.order=['sft', 'grpo'] has more"),
        ([TWO, "pipeline.stages.train.evolve=false"], "stage train does not evolve"),
        ([TWO, "evolution.start_from=somewhere"], "evolution.start_from and evolution.species do not go together"),
    ],
)
def test_lists_that_cannot_be_are_refused(overrides: list[str], sentence: str) -> None:
    assert any(sentence in told for told in refusals("evolution=gated", *overrides))


def test_a_stored_config_gives_the_same_species_again() -> None:
    composed = compose([TWO, "evolution.species.granularity=[mixed,turn]"])
    assert species_of(build(composed.values)) == species_of(build(composed.values, composed.provenance))
    assert composed.provenance["evolution.species.parts.ppo+turn.granularity.credit"] == "conf/granularity/turn.yaml"
    below = "evolution.species.parts.ppo+turn."
    told = {key.removeprefix(below).partition(".")[0] for key in composed.provenance if key.startswith(below)}
    assert told == {"algorithm", "reward", "granularity"}


@pytest.mark.parametrize(("name", "own"), [("ppo", [f"{OF_CRITIC}}}"]), ("grpo", [])])
def test_one_species_of_a_stored_config_is_the_run_that_it_would_be_alone(name: str, own: list[str]) -> None:
    values = compose([TWO, "evolution=gated", f"{OF_CRITIC}, when: {{algorithm: [ppo]}}}}"]).values
    as_one_species(values, {"algorithm": name, RATE: 0.1})
    one, alone = build(values), loaded(f"algorithm={name}", "evolution=gated", *own)
    assert names(one) == [""] and one.algorithm == alone.algorithm and one.pipeline == alone.pipeline
    assert one.evolution == alone.evolution


def test_what_is_recorded_of_a_member_includes_its_species() -> None:
    spaces = recorded_spaces(loaded(TWO, "evolution=gated"))
    assert list(spaces) == ["grpo", "ppo"] and "reward" not in spaces["ppo"]
    assert spaces["ppo"]["algorithm"].choices == ["grpo", "ppo"] and RATE in spaces["ppo"]
    assert name_of({"granularity": "turn", "algorithm": "ppo", RATE: 0.1}) == "ppo+turn"


@pytest.mark.parametrize("written", ["evolution.species.parts=3", "+evolution.species.parts.x={choices: {reward: y}}"])
def test_parts_that_somebody_writes_are_refused_instead_of_lost(written: str) -> None:
    for lists in ([TWO], []):
        [told] = refusals(*lists, written)
        assert told.startswith("evolution.species.parts is made from lists of options")


def test_a_value_that_one_species_needs_is_asked_for_where_it_can_be_written(tmp_path: Path) -> None:
    lists = ("evolution=gated", "granularity=sparse", "evolution.species.reward=[environment,{}]")
    *others, listed = lists
    [told] = refusals(*others, listed.format("reward_model"))
    assert told.startswith("reward.path is needed by the species reward_model") and "reward/<name>.yaml" in told
    extra = write_yaml(tmp_path, "reward/mine", "defaults: [reward_model, _self_]\npath: somewhere\n")
    composed = compose([*others, listed.format("mine")], extra)
    mine = species_of(build(composed.values, composed.provenance, composed.choices))[1]
    assert isinstance(mine.config.reward, RewardModelReward) and mine.config.reward.path == "somewhere"


def test_an_option_of_ones_own_can_be_a_species(tmp_path: Path) -> None:
    write_yaml(tmp_path / "algorithm", "mine", "defaults: [ppo, _self_]\nepochs: 7\n")
    composed = compose(["evolution.species.algorithm=[grpo,mine]"], tmp_path)
    config = build(composed.values, composed.provenance, composed.choices)
    assert [one.config.algorithm.epochs for one in species_of(config)][1] == 7


def test_composing_species_leaves_the_folder_of_the_run_as_it_is_written() -> None:
    assert str(compose([TWO, "hydra.run.dir=of_${hydra:runtime.choices.algorithm}"]).folder) == "of_grpo"
