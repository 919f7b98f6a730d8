"""Rewards: how an episode is scored. One file and one YAML each; the protocol is in `core`."""

from rewards.core import Reward, Score

__all__ = ["Reward", "Score"]
