"""Parts that do not go together are refused with the reason and the nearest legal choice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.config.support import coin, loaded, plugins_on_path, refusals, write_yaml

RATE = "algorithm.optimizer.learning_rate"


def space(dimension: str, key: str = RATE) -> list[str]:
    return ["evolution=none", f"+evolution.space.{key}={dimension}"]


def test_turn_rewards_that_the_environment_does_not_give() -> None:
    with plugins_on_path():
        [sentence] = refusals(*coin(), "granularity=mixed")
    assert sentence == (
        "granularity=mixed needs turn rewards, for which reward=environment needs turn_rewards, "
        "and env=Coin gives none; use granularity=sparse or granularity=trajectory"
    )


def test_turn_rewards_that_the_reward_does_not_give() -> None:
    with plugins_on_path():
        [sentence] = refusals("plugins=[toy_parts]", "reward._target_=toy_parts.Outcome", "granularity=dense")
    assert sentence.startswith(
        "granularity=dense needs turn rewards, and reward=environment gives none; use granularity=sparse or "
        "granularity=trajectory, or use reward="
    )


def test_an_estimator_that_weighs_turn_rewards_where_there_are_none() -> None:
    [sentence] = refusals("algorithm=mt_grpo", "granularity=sparse")
    assert sentence == (
        "stage train learns with TurnRelative, which weighs turn rewards against the outcome, and granularity=sparse "
        "pays out the outcome alone; use granularity=mixed"
    )


def test_turn_counts_that_the_environment_does_not_fix() -> None:
    [sentence] = refusals("algorithm=mt_grpo", "algorithm.advantage.unequal=refuse")
    assert sentence.startswith("stage train learns with TurnRelative, which needs fixed_turns, and env=frozen_lake")


def test_components_that_the_reward_does_not_give() -> None:
    [sentence] = refusals("algorithm=gdpo", "+algorithm.advantage.weights.tone=0.3")
    assert sentence == (
        "stage train weighs the components tone, and reward=environment gives invalid, progress, success, turns; "
        "take them away with ~algorithm.advantage.weights.tone, and write those of the reward, as in "
        "+algorithm.advantage.weights.success=1"
    )


def test_controls_of_a_run_in_which_there_is_nothing_to_control_for() -> None:
    lone = "sweep.controls asks for single, and in this run nobody is selected, so there is no evolution to control for"
    for nobody in (["evolution=none"], ["evolution=gated", "evolution.population=1"], ["evolution=random"]):
        [sentence] = refusals(*nobody, "sweep.controls=[single]")
        assert sentence == f"{lone}; write sweep.controls=[], or let a population evolve (evolution=gated)"
    scorer = ["algorithm=reward_model", "algorithm.data=pairs.jsonl"]
    [sentence] = refusals("evolution=gated", *scorer, "sweep.controls=[all]")
    assert "and nothing is sampled in it; write sweep.controls=[]" in sentence
    loaded("evolution=gated", "sweep.controls=[single,all]")


def test_a_control_that_does_not_exist() -> None:
    [sentence] = refusals("evolution=gated", "sweep.controls=[luck]")
    assert sentence.startswith(
        "sweep.controls.0 must be one of independent, selection_only, mutation_only, single, all, not 'luck'"
    )


def test_scores_that_compare_within_a_group_leave_it() -> None:
    with plugins_on_path():
        relative = ["plugins=[toy_parts]", "reward._target_=toy_parts.Ranking", "granularity=sparse"]
        [sentence] = refusals(*relative, "algorithm=ppo")
        loaded(*relative, "algorithm=grpo")
    assert sentence.startswith(
        "scores of reward=environment compare only within a group, and stage train compares episodes of different "
        "groups; use algorithm="
    )


def test_episodes_sampled_ahead_that_a_generation_does_not_use_up() -> None:
    [sentence] = refusals("rollout.ahead=2")
    assert sentence == (
        "a generation of stage train is 5 updates long, and rollout.ahead=2 samples the episodes of that many updates "
        "at once; write pipeline.stages.train.updates=6"
    )


def test_stale_episodes_of_an_objective_without_a_ratio() -> None:
    [sentence] = refusals("algorithm=rloo", "rollout.ahead=5")
    assert sentence == (
        "rollout.ahead=5 makes episodes stale, and stage train learns with Unclipped, which has no ratio to correct "
        "for that; write rollout.ahead=1, or algorithm/objective=clipped"
    )
    loaded("algorithm=cispo", "rollout.ahead=5")


def test_a_member_that_is_to_be_replaced_where_nobody_is_selected() -> None:
    for nobody in (
        ["evolution=none"],
        ["evolution=random"],
        ["evolution=truncation", "pipeline.stages.train.evolve=false"],
    ):
        sentences = refusals("on_alarm=replace", *nobody)
        assert sentences[0] == (
            "on_alarm=replace makes a member lose the next selection, and in this run nobody is selected; "
            "write on_alarm=warn or on_alarm=stop, or evolution=truncation"
        )
    loaded("on_alarm=replace", "evolution=truncation")


def test_an_expert_that_the_environment_does_not_have() -> None:
    with plugins_on_path():
        [sentence] = refusals(*coin(), "algorithm=sft")
    assert sentence.startswith(
        "stage train learns with Supervised, which needs expert, and env=Coin gives none; use env="
    )
    assert "env=frozen_lake" in sentence


def test_a_group_of_one_is_too_small_to_compare_within() -> None:
    [sentence] = refusals("algorithm=grpo", "rollout.group_size=1")
    assert sentence == (
        "stage train compares the episodes of a group, so it needs at least 2 of them, and rollout.group_size is 1; "
        "write rollout.group_size=4"
    )
    loaded("algorithm=sft", "rollout.group_size=1")


def test_the_whole_base_is_trained_by_a_population_of_one_only() -> None:
    [sentence] = refusals("model=tiny_scratch", "algorithm=sft", "evolution.population=2")
    assert sentence == (
        "model.train=base trains every weight of one model, and evolution.population is 2; "
        "write evolution=none, or model.train=adapters"
    )
    loaded("model=tiny_scratch", "algorithm=sft")


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ("dpo", "compares with a reference; write model.train=adapters"),
        ("ppo", "has a critic, which is an adapter on it; write model.train=adapters"),
        ("grpo", "measures the divergence from a reference; write model.train=adapters, or algorithm.kl.coef=0"),
    ],
)
def test_a_base_that_is_trained_itself_is_no_reference_and_carries_no_critic(algorithm: str, sentence: str) -> None:
    [found] = refusals("model=tiny_scratch", f"algorithm={algorithm}")
    assert found == f"model.train=base leaves no frozen base behind, and stage train {sentence}"
    loaded("model=tiny_scratch", "algorithm=grpo", "algorithm.kl.coef=0")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("pipeline.order=[trian]", "pipeline.order names the stage trian, and pipeline.stages has train"),
        ("pipeline.order=[train,train]", "pipeline.order names the stage train twice"),
    ],
)
def test_the_pipeline_runs_the_stages_it_has(override: str, sentence: str) -> None:
    assert any(found.startswith(sentence) for found in refusals(override))


def test_a_stage_that_never_runs_is_refused() -> None:
    assert refusals("pipeline=sft_then_grpo", "pipeline.order=[grpo]") == [
        "the stage sft is in pipeline.stages and never runs; write pipeline.order=[grpo,sft]"
    ]


def test_an_action_has_to_fit_into_the_context() -> None:
    [sentence] = refusals("rollout.max_action_tokens=64", "rollout.max_context=64")
    assert sentence.endswith("write rollout.max_context=256 or more")


def test_a_device_that_is_not_there_is_refused() -> None:
    assert refusals("device=gpu") == ["device is 'gpu'; write auto, cpu, cuda or cuda:N"]
    absent = f"cuda:{torch.cuda.device_count()}"
    assert refusals(f"device={absent}")[0].endswith("write device=auto")


def test_a_dimension_can_be_taken_out_of_the_default_space() -> None:
    config, _ = loaded("evolution=truncation", "~evolution.space.algorithm.kl.coef")
    assert RATE in config.evolution.space and "algorithm.kl.coef" not in config.evolution.space


def test_the_default_space_is_legal() -> None:
    config, _ = loaded("evolution=truncation")
    assert RATE in config.evolution.space


@pytest.mark.parametrize(
    ("dimension", "reason"),
    [
        ("{type: float, low: 1e-2, high: 1e-4}", "runs from 0.01 to 0.0001"),
        ("{type: float, low: 1e-4}", "has no end"),
        ("{type: float, low: 0, high: 1, log: true}", "is logarithmic and starts at 0"),
        ("{type: float, low: 0.5, high: 1}", f"{RATE} starts at 0.001, outside the range 0.5 to 1"),
        ("{type: int, low: 0, high: 1.5}", "holds whole numbers and runs from 0 to 1.5"),
        ("{type: categorical}", "is categorical and has no choices"),
        ("{type: categorical, choices: [0.1, 0.2]}", f"{RATE} starts at 0.001, which is no choice"),
        ("{type: categorical, choices: [0.001], low: 0}", "is categorical, so low, high and log mean nothing"),
        ("{type: float, low: 0, high: 1, choices: [1]}", "is a range, so choices mean nothing"),
        ("{type: float, low: -inf, high: 1}", "must be a finite number"),
        ("{type: flot, low: 0, high: 1}", "must be one of float, int, categorical, not 'flot'"),
        ("{type: float, low: 0, hihg: 1}", f"did you mean evolution.space.{RATE}.high?"),
    ],
)
def test_a_search_space_that_makes_no_sense_is_refused(dimension: str, reason: str) -> None:
    assert any(reason in sentence for sentence in refusals(*space(dimension)))


def test_a_whole_number_does_not_evolve_as_a_fraction() -> None:
    [sentence] = refusals(*space("{type: float, low: 0, high: 8}", key="rollout.top_k"))
    assert sentence.endswith("write type: int")


@pytest.mark.parametrize("key", ["rollout.tasks", "algorithm.optimizer.beta1", "no.such.key"])
def test_only_what_can_evolve_may_be_in_the_space(key: str) -> None:
    [sentence] = refusals(*space("{type: float, low: 0, high: 1}", key=key))
    assert sentence.startswith(f"evolution.space has {key}, which cannot evolve in this run")
    assert RATE in sentence


def test_a_misspelt_dimension_names_the_right_one() -> None:
    [sentence] = refusals(*space("{type: float, low: 0, high: 1}", key="algorithm.optimizer.learning_rat"))
    assert "algorithm.optimizer.learning_rat (did you mean algorithm.optimizer.learning_rate?)" in sentence


def test_an_optional_dimension_is_left_out_where_the_algorithm_has_no_such_key() -> None:
    loaded("evolution=truncation", "algorithm=reinforce")
    [sentence] = refusals(
        "evolution=truncation", "algorithm=reinforce", "evolution.space.algorithm.objective.clip_low.optional=false"
    )
    assert sentence.startswith("evolution.space has algorithm.objective.clip_low, which cannot evolve in this run")
    assert "write optional: true" in sentence


def test_a_dimension_can_be_written_with_a_dotted_key_or_nested_and_changed_on_the_command_line(tmp_path: Path) -> None:
    dotted = "algorithm.kl.coef: {type: float, low: 0.0, high: 1.0}\n"
    write_yaml(tmp_path, "evolution/space/dotted", dotted)
    write_yaml(tmp_path, "evolution/space/nested", "algorithm: {kl: {coef: {type: float, low: 0.0, high: 1.0}}}\n")
    one, _ = loaded("evolution=truncation", "evolution/space=dotted", extra=tmp_path)
    two, _ = loaded("evolution=truncation", "evolution/space=nested", extra=tmp_path)
    assert one.evolution.space == two.evolution.space
    changed = "evolution.space.algorithm.kl.coef.high=0.5"
    three, _ = loaded("evolution=truncation", "evolution/space=nested", changed, extra=tmp_path)
    assert three.evolution.space["algorithm.kl.coef"].high == 0.5


def test_failing_that_pays_off() -> None:
    guess = ["env=guess_number", "granularity=mixed"]
    loaded(*guess)
    loaded(
        *guess, "reward.turn_penalty=0.2"
    )  # here the outcome itself prefers a quick failure, which is not ours to mend
    [sentence] = refusals(*guess, "reward.invalid_penalty=0.2")  # seven invalid turns cost more than success brings
    assert sentence == (
        "granularity=mixed lets a failed episode earn as much as a successful one: with reward=environment in "
        "env=guess_number a failure can collect 1 in turn rewards, a success as little as -0.4 and an outcome that is "
        "worth 1 more; write granularity.outcome_weight=1.5 or more, or granularity=sparse"
    )
    weight = sentence.partition("granularity.outcome_weight=")[2].partition(" ")[0]
    loaded(*guess, "reward.invalid_penalty=0.2", f"granularity.outcome_weight={weight}")


def test_a_scorer_beside_other_stages() -> None:
    [sentence] = refusals("pipeline=sft_then_grpo", "algorithm=progress_model")
    assert sentence.startswith("stage grpo trains a scorer") and "pipeline=single" in sentence


def test_a_scorer_on_a_base_that_moves() -> None:
    [sentence] = refusals("algorithm=progress_model", "model.train=base")
    assert sentence == (
        "model.train=base leaves no frozen base behind, and stage train trains a head on it; write model.train=adapters"
    )


def test_a_limit_on_the_divergence_from_a_base_that_moves() -> None:
    learned = ["reward=reward_model", "reward.path=x", "granularity=sparse", "algorithm.kl.coef=0"]
    [sentence] = refusals(*learned, "model.train=base")
    assert "which reward=reward_model limits" in sentence and sentence.endswith("or reward.kl_limit=null")


def test_what_is_paid_by_turn_where_only_outcomes_are_paid() -> None:
    [sentence] = refusals("reward=state_progress", "granularity=sparse")
    assert sentence.startswith(
        "reward=state_progress pays turns and no outcome, and granularity=sparse pays out the outcome alone; use "
    )
    added = ["reward=composite", "+reward@reward.parts.near=state_progress", "+reward.weights.near=0.1"]
    [sentence] = refusals(*added, "granularity=sparse")
    assert sentence.startswith("the part near of reward=composite pays turns and no outcome")
    loaded(*added, "granularity=mixed")


def test_a_ranking_judge_and_a_critic() -> None:
    judge = ["reward=ruler", "granularity=sparse", "algorithm=ppo"]
    [sentence] = refusals(*judge)
    assert "compare only within a group" in sentence and sentence.endswith("or write reward.center=true")
    loaded(*judge, "reward.center=true")


def test_a_space_that_leads_where_an_algorithm_cannot_go() -> None:
    epochs = space("{type: int, low: 1, high: 3}", "algorithm.epochs")
    [sentence] = refusals("algorithm=rloo", *epochs)
    assert sentence.startswith("evolution.space.algorithm.epochs goes to 3, where Unclipped uses no ratio")
    loaded("algorithm=grpo", *epochs)


def test_groups_that_would_become_too_small() -> None:
    [sentence] = refusals(*space("{type: int, low: 1, high: 8}", "rollout.group_size"))
    assert sentence == (
        "evolution.space.rollout.group_size goes down to 1, and stage train needs at least 2 episodes in a group to "
        "compare; let it begin at 2"
    )


def test_a_whole_number_can_be_searched_around_its_own_value() -> None:
    config, _ = loaded(*space("{type: int, low: 0.5, high: 2, relative: true}", "rollout.group_size"))
    around = config.evolution.space["rollout.group_size"]
    assert (around.low, around.high, around.relative) == (2, 8, False)


@pytest.mark.parametrize(
    ("granularity", "key"), [("sparse", "turn_weight"), ("sparse", "turn_decay"), ("dense", "outcome_weight")]
)
def test_the_weight_of_what_a_granularity_does_not_pay_cannot_evolve(granularity: str, key: str) -> None:
    dimension = space("{type: float, low: 0.5, high: 1}", f"granularity.{key}")
    [sentence] = refusals(f"granularity={granularity}", *dimension)
    assert sentence.startswith(f"evolution.space has granularity.{key}, which cannot evolve in this run")
    loaded("granularity=mixed", *dimension)


def test_weights_that_an_algorithm_does_not_read_cannot_evolve() -> None:
    weights = ["algorithm=gdpo", "reward=composite", "algorithm.advantage.weights={success: 1.0, progress: 0.0}"]
    for key in ("reward.weights.success", "granularity.turn_weight"):
        dimension = space("{type: float, low: 0.5, high: 2}", key)
        assert any(f"{key}, which cannot evolve" in sentence for sentence in refusals(*weights, *dimension))
        loaded("algorithm=grpo", "reward=composite", *dimension)


def test_a_search_that_would_end_before_its_second_trial() -> None:
    [sentence] = refusals("evolution=tpe", "pipeline.stages.train.generations=7")
    assert sentence == (
        "stage train has 7 generation(s) and a trial takes 4, so it ends before anything is suggested; write "
        "evolution.strategy.trial=3, or pipeline.stages.train.generations=8"
    )
    [sentence] = refusals("evolution=tpe", "pipeline.stages.train.generations=1")
    assert sentence.endswith("; write pipeline.stages.train.generations=8")
    loaded("evolution=tpe")
    loaded("evolution=tpe", "pipeline=sft_then_grpo")  # a single generation of cloning, in which nothing is searched


def test_known_values_that_nobody_could_take() -> None:
    known = "evolution.start_from=study.db"
    [sentence] = refusals("evolution=gated", "evolution.population=1", known)
    assert sentence == (
        "evolution.start_from gives members 1, 2, … the best values, and there is only member 0; write "
        "evolution.population=8, or leave evolution.start_from out"
    )
    [sentence] = refusals("evolution=gated", "evolution.spread=false", known)
    assert "and evolution.spread=false lets all begin alike; write evolution.spread=true, or leave" in sentence
    [sentence] = refusals("evolution=gated", "evolution/space=none", known)
    assert "and evolution.space is empty; choose an evolution/space, or leave" in sentence
    absent = "+evolution.space.algorithm.kl.coef={type: float, low: 0, high: 1, optional: true}"
    assert refusals("evolution=gated", "evolution/space=none", absent, "algorithm=sft", known) == [sentence]
    loaded("evolution=random", known)


def test_a_strategy_that_counts_generations_is_asked_after_each() -> None:
    [sentence] = refusals("evolution=gated", "evolution.every=2")
    assert sentence == "evolution.every is 2, and Gated counts generations itself; write evolution.every=1"
    [sentence] = refusals("evolution=tpe", "evolution.burn_in=1")
    assert sentence == "evolution.burn_in is 1, and TPE counts generations from the first; write evolution.burn_in=0"
    loaded("evolution=gated", "evolution.burn_in=1")
    loaded("evolution=truncation", "evolution.every=2", "evolution.burn_in=1")


TURN_WEIGHT = "+evolution.space.granularity.turn_weight={type: float, low: 0.5, high: %s}"


def test_failing_must_not_pay_wherever_weights_may_evolve_to() -> None:
    guess = ["evolution=gated", "env=guess_number", "granularity=mixed", "reward.invalid_penalty=0.1"]
    loaded(*guess, TURN_WEIGHT % "1.2")
    [sentence] = refusals(*guess, TURN_WEIGHT % "4")
    assert sentence == (
        "evolution.space allows granularity.turn_weight=4, and with that a failed episode earns as much as a "
        "successful one under granularity=mixed; narrow these ranges, or write granularity=sparse"
    )
    outcome = "+evolution.space.granularity.outcome_weight={type: float, low: 0.1, high: 2}"
    [sentence] = refusals(*guess, outcome)
    assert "allows granularity.outcome_weight=0.1, and" in sentence
    [sentence] = refusals(*guess, outcome, TURN_WEIGHT % "4")
    assert "evolution.space allows granularity.outcome_weight=0.1, granularity.turn_weight=0.5, and" in sentence
    [sentence] = refusals(*guess, "granularity.turn_weight=4", TURN_WEIGHT % "5")
    assert sentence.startswith("granularity=mixed lets a failed episode earn as much"), "and the space is not blamed"


def test_failing_must_not_pay_as_much_as_succeeding() -> None:
    even = ["env=guess_number", "granularity=mixed", "reward.invalid_penalty=0.125", "granularity.outcome_weight={}"]
    [sentence] = refusals(*(line.format(7 * 0.125) for line in even))  # seven guesses may be invalid
    assert "write granularity.outcome_weight=0.9 or more" in sentence
    loaded(*(line.format(0.9) for line in even))


def test_weights_of_a_reward_must_not_evolve_to_where_failing_pays() -> None:
    guess = ["evolution=gated", "env=guess_number", "granularity=mixed", "reward=composite"]
    strict = ["+reward@reward.parts.strict=environment", "reward.parts.strict.invalid_penalty=0.2"]
    space = "+evolution.space.reward.weights.strict={type: float, low: 0.5, high: %s}"
    loaded(*guess, *strict, "+reward.weights.strict=1", space % "2")
    [sentence] = refusals(*guess, *strict, "+reward.weights.strict=1", space % "5")
    assert sentence.startswith("evolution.space allows reward.weights.strict=5, and with that a failed episode")


def test_a_relative_range_without_the_own_value_says_what_to_write() -> None:
    key = "algorithm.kl.coef"
    [sentence] = refusals("evolution=gated", f"++evolution.space.{key}={{low: 2, high: 5}}")
    assert sentence == (
        f"evolution.space.{key} is relative and runs from 2 to 5 times the value of {key}, which leaves that value "
        f"itself out; write low: 1, or change {key} and give multiples of that"
    )
    loaded("evolution=gated", f"++evolution.space.{key}={{low: 1, high: 5}}")
    [sentence] = refusals("evolution=gated", f"++evolution.space.{key}={{low: 0.2, high: 0.5}}")
    assert "; write high: 1, or change" in sentence
    [sentence] = refusals("evolution=gated", f"++evolution.space.{key}={{low: 5, high: 2}}")
    assert "relative and runs" not in sentence and "write a low that is less than high" in sentence
