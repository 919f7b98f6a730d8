"""Surrogate objectives: a loss per token from log-ratio and advantage.

`clipped` PPO, GRPO, DAPO, GSPO, LOOP · `clipping_normalised` SORL · `cispo` · `sapo` · `dppo` · `unclipped` REINFORCE
"""

from algorithms.objectives.cispo import CISPO
from algorithms.objectives.clipped import Clipped
from algorithms.objectives.clipping_normalised import ClippingNormalised
from algorithms.objectives.core import Objective, Surrogate
from algorithms.objectives.dppo import DPPO
from algorithms.objectives.sapo import SAPO
from algorithms.objectives.unclipped import Unclipped

__all__ = ["CISPO", "DPPO", "SAPO", "Clipped", "ClippingNormalised", "Objective", "Surrogate", "Unclipped"]
