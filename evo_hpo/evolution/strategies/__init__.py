"""Evolution strategies: who takes whose place; see `core`.

`none` · `gated` · `truncation` · `tournament` · `pb2` · `multi_frequency` · `halving` · `replay`
"""

from evo_hpo.evolution.strategies.controls import MutationOnly, SelectionOnly
from evo_hpo.evolution.strategies.core import Fate, Past, Standing, Strategy, Values
from evo_hpo.evolution.strategies.gated import Gated
from evo_hpo.evolution.strategies.halving import SuccessiveHalving
from evo_hpo.evolution.strategies.multi_frequency import MultiFrequency
from evo_hpo.evolution.strategies.none import NoEvolution
from evo_hpo.evolution.strategies.pb2 import PB2
from evo_hpo.evolution.strategies.replay import Replay
from evo_hpo.evolution.strategies.tournament import Tournament
from evo_hpo.evolution.strategies.tpe import TPE
from evo_hpo.evolution.strategies.truncation import Truncation

__all__ = [
    "PB2",
    "Fate",
    "Gated",
    "MultiFrequency",
    "MutationOnly",
    "NoEvolution",
    "Past",
    "Replay",
    "SelectionOnly",
    "TPE",
    "Standing",
    "Strategy",
    "SuccessiveHalving",
    "Tournament",
    "Truncation",
    "Values",
]
