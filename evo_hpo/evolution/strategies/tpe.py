"""Sequential search over whole trainings, with Optuna's TPE: no member learns from another's weights."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from evo_hpo.config.species import name_of
from evo_hpo.evolution.space import distribution
from evo_hpo.evolution.strategies.core import Fate, Standing, Strategy, Values


@dataclass(frozen=True)
class TPE(Strategy):
    """Every member trains for `trial` generations from the start; then it begins anew with what TPE suggests.

    Tree-structured Parzen estimator (Bergstra et al. 2011) as Optuna has it, multivariate; what the other members are
    just trying counts as done. The result is the best member of any generation. The classical way to tune, and a
    control: it pays for every trial in full.
    """

    own_interval: ClassVar[bool] = True
    own_start: ClassVar[bool] = True

    trial: Annotated[int, Gt(0)]  # generations of one trial
    startup: Annotated[int, Ge(1)]  # trials before TPE takes over from random search

    @property
    def restarts(self) -> bool:
        return True

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        if (standing.generation + 1) % self.trial:
            return [Fate(m, "kept", False, "its trial goes on") for m in range(len(standing.fitness))]
        suggested = self._suggest(standing, rng)
        return [
            Fate(m, "restarted", False, f"trial {len(self._trials(standing)) + m} ended", values=values)
            for m, values in enumerate(suggested)
        ]

    def _trials(self, standing: Standing) -> list[tuple[Values, float]]:
        """(hyperparameters, fitness) of the trials that were complete before this generation, first to last."""
        return [
            trial
            for number, past in enumerate(standing.past)
            if (number + 1) % self.trial == 0
            for trial in zip(past.values, past.fitness, strict=True)
        ]

    def _suggest(self, standing: Standing, rng: np.random.Generator) -> list[Values]:
        """Of each member what its species should try next."""
        found: dict[int, Values] = {}
        for species in sorted({name_of(values) for values in standing.values}):
            members = [m for m, values in enumerate(standing.values) if name_of(values) == species]
            suggested = self._of_species(species, members, standing, int(rng.integers(2**31)))
            found |= dict(zip(members, suggested, strict=True))
        return [found[m] for m in range(len(standing.values))]

    def _of_species(self, species: str, members: list[int], standing: Standing, seed: int) -> list[Values]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        dimensions = standing.space_of(standing.values[members[0]])
        space = {name: distribution(dimension) for name, dimension in sorted(dimensions.items())}
        trials = [*self._trials(standing), *zip(standing.values, standing.fitness, strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=self.startup, multivariate=True, constant_liar=True, seed=seed
            )
            study = optuna.create_study(direction="maximize", sampler=sampler)
            for values, fitness in trials:
                if np.isfinite(fitness) and name_of(values) == species:
                    params = {name: _inside(space[name], values[name]) for name in space}
                    trial = optuna.trial.create_trial(params=params, distributions=dict(space), value=float(fitness))
                    study.add_trial(trial)
            return [dict(standing.values[m]) | study.ask(dict(space)).params for m in members]


def _inside(distribution: Any, value: Any) -> Any:
    """The value, moved to the end of the range that rounding took it across."""
    low, high = getattr(distribution, "low", None), getattr(distribution, "high", None)
    return value if low is None or high is None else min(max(value, low), high)
