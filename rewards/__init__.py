"""Rewards: how an episode is scored. One file and one YAML each; the protocol is in `core`.

environment      the environment's own outcome and turn rewards
composite        the weighted sum of others
checks           answer_match, format, forbidden, turn_limit, efficiency, repetition, overlong, turn_reward, novelty
state_progress   potential-based shaping
judge            a language model: RULER, rubrics, preferences
reward_model, progress, information_gain    what a trained head, or the base itself, says
granularity      where a score is paid out
"""

from rewards.core import Reward, Score

__all__ = ["Reward", "Score"]
