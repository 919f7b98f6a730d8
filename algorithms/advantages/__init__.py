"""Advantage estimators: one number per trained token from the table of turns.

Without a critic: `returns` REINFORCE, REINFORCE++ · `group_relative` GRPO, Dr. GRPO, RLOO, LOOP, REINFORCE++-baseline ·
`turn_relative` MT-GRPO · `anchor_state` GiGPO · `decoupled` GDPO · `entropy_modulated` EMPG, around another
With one: `gae` PPO, Turn-PPO, MT-PPO · `bi_level_gae` RAGEN
Shared: `normalisation`, `core`
"""

from algorithms.advantages.anchor_state import AnchorState
from algorithms.advantages.bi_level_gae import BiLevelGAE
from algorithms.advantages.core import Advantage, Critical
from algorithms.advantages.decoupled import Decoupled
from algorithms.advantages.entropy_modulated import EntropyModulated
from algorithms.advantages.gae import GAE
from algorithms.advantages.group_relative import GroupRelative
from algorithms.advantages.normalisation import Normalisation
from algorithms.advantages.returns import Returns
from algorithms.advantages.turn_relative import TurnRelative

__all__ = [
    "GAE",
    "Advantage",
    "AnchorState",
    "BiLevelGAE",
    "Critical",
    "Decoupled",
    "EntropyModulated",
    "GroupRelative",
    "Normalisation",
    "Returns",
    "TurnRelative",
]
