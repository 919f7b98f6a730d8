"""Evolution strategies: who takes whose place. `none` · `gated` · `truncation` · `tournament`; see `core`."""

from evo_hpo.evolution.strategies.core import Fate, Past, Standing, Strategy, Values
from evo_hpo.evolution.strategies.gated import Gated
from evo_hpo.evolution.strategies.none import NoEvolution
from evo_hpo.evolution.strategies.tournament import Tournament
from evo_hpo.evolution.strategies.truncation import Truncation

__all__ = ["Fate", "Gated", "NoEvolution", "Past", "Standing", "Strategy", "Tournament", "Truncation", "Values"]
