"""FrozenLake: Gymnasium's dynamics, and a progress signal with known sums."""

from __future__ import annotations

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.core import Step
from envs.frozen_lake import MOVES, FrozenLake, Lake
from tests.envs.test_conformance import build

# S F F F
# F H F H
# F F F H
# H F F G
WELL_KNOWN = ("SFFF", "FHFH", "FFFH", "HFFG")


def on_map(rows: tuple[str, ...], cell: int = 0, slippery: bool = False) -> FrozenLake:
    """An episode that stands on `cell` of the map `rows`."""
    env = FrozenLake(size=len(rows), slippery=slippery, max_turns=40)
    env.reset(0)
    env.restore((rows, cell, env.snapshot()[2]))
    return env


def play(env: FrozenLake, *actions: str) -> list[Step]:
    return [env.step(action) for action in actions]


def test_the_yaml_gives_the_defaults_of_the_class() -> None:
    assert build("frozen_lake") == FrozenLake()


def test_a_seed_gives_gymnasiums_map_of_that_seed() -> None:
    env = FrozenLake()
    for seed in range(20):
        env.reset(seed)
        assert env.task_key() == "/".join(generate_random_map(4, 0.8, seed))


def test_the_observation_is_the_grid_with_one_character_per_cell() -> None:
    env = on_map(WELL_KNOWN)
    assert env.step("right").observation == ".@..\n.#.#\n...#\n#..*"
    assert env.step("right").observation == "..@.\n.#.#\n...#\n#..*"
    assert on_map(WELL_KNOWN, 14).step("right").observation == "You reached the goal.\n....\n.#.#\n...#\n#..@"
    assert on_map(WELL_KNOWN, 1).step("down").observation == "You fell into a hole.\n....\n.@.#\n...#\n#..*"


@pytest.mark.parametrize("slippery", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_moves_are_those_of_gymnasium(seed: int, slippery: bool) -> None:
    env = FrozenLake(slippery=slippery, max_turns=40)
    env.reset(seed)
    rows, cell, random_state = env.snapshot()
    reference = FrozenLakeEnv(desc=list(rows), is_slippery=slippery)
    reference.reset(seed=0)
    reference.np_random.bit_generator.state = random_state
    for turn in range(40):
        cell, gain, done, _, _ = reference.step((turn * 7 + seed) % 4)
        step = env.step(MOVES[(turn * 7 + seed) % 4])
        assert env.state_key() == (rows, cell)
        assert (step.done, step.success) == (done, gain == 1)
        if done:
            break


def test_the_turn_reward_is_the_share_of_the_distance_that_was_covered() -> None:
    # The goal is 6 moves away and the furthest cell, the upper right corner, 5; a hole therefore counts 7.
    env = on_map(WELL_KNOWN)
    assert Lake(WELL_KNOWN, False).distance == [6, 5, 4, 5, 5, 7, 3, 7, 4, 3, 2, 7, 7, 2, 1, 0]
    assert [step.reward for step in play(env, "right", "left", "up")] == pytest.approx([1 / 6, -1 / 6, 0])
    fall = play(env, "right", "down")
    assert fall[-1].reward == pytest.approx((5 - 7) / 6)
    assert fall[-1].done and not fall[-1].success


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6), moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=30), slippery=st.booleans()
)
def test_turn_rewards_sum_to_one_on_success_and_below_zero_in_a_hole(
    seed: int, moves: list[str], slippery: bool
) -> None:
    env = FrozenLake(slippery=slippery, max_turns=40)
    env.reset(seed)
    total = 0.0
    for move in moves:
        step = env.step(move)
        total += step.reward
        if step.done:
            assert total == pytest.approx(1.0) if step.success else total < 0 and step.reward < 0
            break
        assert total < 1


def test_the_expert_wins_every_task_by_a_shortest_path() -> None:
    for env in (
        FrozenLake(),
        FrozenLake(size=8, max_turns=14),
        FrozenLake(size=6, frozen_probability=0.6, max_turns=20),
    ):
        for seed in range(100):
            env.reset(seed)
            rewards = []
            while (action := env.expert()) is not None:
                rewards.append(env.step(action).reward)
            assert sum(rewards) == pytest.approx(1.0)
            assert rewards == pytest.approx([1 / len(rewards)] * len(rewards))
            assert len(rewards) <= env.max_turns


def test_the_slippery_expert_walks_away_from_holes() -> None:
    # With slips to either side, "left" at the left wall never goes right, where the hole is.
    assert on_map(WELL_KNOWN, 4, slippery=True).expert() == "left"
    assert on_map(WELL_KNOWN, 4).expert() == "down"


@pytest.mark.parametrize("action", ["LEFT", " left\n", "Left"])
def test_case_and_surrounding_space_are_forgiven(action: str) -> None:
    assert on_map(WELL_KNOWN, 1).step(action).valid


@pytest.mark.parametrize("action", ["go left", "left right", "0", "l", "left."])
def test_nothing_but_the_word_is_accepted(action: str) -> None:
    step = on_map(WELL_KNOWN, 1).step(action)
    assert not step.valid
    assert step.observation == "Say left, down, right or up.\n.@..\n.#.#\n...#\n#..*"


def test_two_routes_to_a_cell_give_one_key_and_other_maps_give_others() -> None:
    first, second = on_map(("SFF", "FFF", "FFG")), on_map(("SFF", "FFF", "FFG"))
    play(first, "right", "down")
    play(second, "down", "up", "down", "right")
    assert first.state_key() == second.state_key()
    assert on_map(("SFF", "FFF", "HFG"), 4).state_key() != first.state_key()


def test_signals_tell_the_distance_and_whether_a_wall_stopped_the_move() -> None:
    wall, move = play(on_map(WELL_KNOWN), "up", "right")
    assert wall.valid and wall.signals == {"distance": 6.0, "moved": 0.0}
    assert move.signals == {"distance": 5.0, "moved": 1.0}


def test_holes_do_not_foretell_the_slips() -> None:
    """Were map and slips drawn from one stream, a hole right of the start would send the first move there."""
    env = FrozenLake(frozen_probability=0.9, slippery=True, max_turns=40)
    slips = []
    for seed in range(1000):
        env.reset(seed)
        if env.task_key()[1] == "H":
            slips.append(env.step("down").done)
    assert sum(slips) / len(slips) == pytest.approx(1 / 3, abs=0.15)


def test_a_step_after_the_end_is_refused() -> None:
    env = on_map(WELL_KNOWN, 14)
    env.step("right")
    assert env.expert() is None
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("left")


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"size": 1}, "from 2 to 12"),
        ({"frozen_probability": 0.1}, "from 0.5 to 1"),
        ({"size": 8}, "write max_turns: 24"),
    ],
)
def test_settings_without_a_winnable_map_are_refused(settings: dict[str, float], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        FrozenLake(**settings)  # type: ignore[arg-type]


def test_the_hardest_legal_settings_give_maps_that_can_be_crossed_in_time() -> None:
    env = FrozenLake(size=12, frozen_probability=0.5, max_turns=22)
    for seed in range(5):
        env.reset(seed)
        assert Lake(tuple(env.task_key().split("/")), False).distance[0] == 22
