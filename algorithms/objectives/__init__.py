"""Surrogate objectives: a loss per token from log-ratio and advantage. `clipped` PPO, GRPO · `unclipped` REINFORCE"""

from algorithms.objectives.clipped import Clipped
from algorithms.objectives.core import Objective, Surrogate
from algorithms.objectives.unclipped import Unclipped

__all__ = ["Clipped", "Objective", "Surrogate", "Unclipped"]
