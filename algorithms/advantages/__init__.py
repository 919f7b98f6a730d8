"""Advantage estimators: one number per trained token from the table of turns.

`group_relative` GRPO, Dr. GRPO, RLOO · `returns` REINFORCE · `token_gae` PPO
"""

from algorithms.advantages.core import Advantage
from algorithms.advantages.group_relative import GroupRelative
from algorithms.advantages.returns import RewardToGo
from algorithms.advantages.token_gae import TokenGAE

__all__ = ["Advantage", "GroupRelative", "RewardToGo", "TokenGAE"]
