"""The evolution step between two generations: what the strategy decides is done to weights, optimisers and values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evo_hpo.config.species import Species, name_of
from evo_hpo.evolution.hyperparameters import of_stage, rows
from evo_hpo.evolution.space import spread
from evo_hpo.evolution.strategies import Fate, Past, Standing, Values
from evo_hpo.policy.noise import generator, key
from evo_hpo.runtime.evaluate import Success
from evo_hpo.tracking.core import MemberGeneration
from evo_hpo.tracking.optuna import best_values
from evo_hpo.tracking.progress import number, short_names

if TYPE_CHECKING:
    from evo_hpo.runtime.training import Training


def first_values(training: Training) -> dict[str, list[Any]]:
    """key -> value of each member as a stage begins: drawn, or the config's own, or what the strategy says.

    Species take turns; the first member of each has its own values. A key that a member does not have is None.
    """
    config, slots, species = training.config, training.policy.slots, training.species
    turns = -(-config.evolution.population // len(species)) if config.evolution.spread else 1
    columns = [_drawn(training, one, turns) for one in species]
    values = []
    for slot in slots:
        one, turn = species[slot % len(species)], slot // len(species) if turns > 1 else 0
        values.append(one.choices | {name: column[turn] for name, column in columns[slot % len(species)].items()})
    begun = config.evolution.strategy.begin(values, slots, training.stage_name)
    return {name: [each.get(name) for each in begun] for name in sorted({name for each in begun for name in each})}


def _drawn(training: Training, species: Species, members: int) -> dict[str, list[Any]]:
    """key -> first values of the members of a species."""
    config = training.config
    own = of_stage(species.config.pipeline.stages[training.stage_name].algorithm, species.config)
    space = {name: dimension for name, dimension in species.space.items() if name in own}
    drawn = spread(space, own, members, key(config.seed, "spread") % 2**31)
    known = config.evolution.start_from
    for turn, found in enumerate(best_values(known, space)[: members - 1] if known and space else [], start=1):
        for name, column in drawn.items():
            column[turn] = found[name]
    return drawn


def evolve(training: Training, fitness: Sequence[Success]) -> list[MemberGeneration]:
    """Select, clone and mutate; what became of every member, in their order before.

    The present generation is added to the history of the progress, whose counters stay as they are.
    """
    progress, config, stage = training.progress, training.config, training.stage
    members, slots = len(fitness), list(training.policy.slots)
    condemned = [progress.condemned.get(str(slot)) for slot in slots]
    rates = [math.nan if condemned[m] else fitness[m].rate for m in range(members)]
    last = progress.stage_generation + 1 == stage.generations or training.exhausted
    standing = _standing(training, fitness, rates)
    on_time = due(progress.stage_generation, config.evolution.burn_in, config.evolution.every)
    selects = stage.evolve and not last and on_time
    if selects:
        fates = config.evolution.strategy.select(standing, generator(config.seed, "evolution", progress.generation))
    else:
        ends = f"the {'budget' if training.exhausted else 'stage'} ends here" if last else "selection is not due yet"
        reason = ends if stage.evolve else "this stage does not evolve"
        fates = [Fate(m, "kept", False, reason) for m in range(members)]
    before = standing.values
    taken = [_taken(fate, before[fate.parent]) for fate in fates]
    exploring = {m: taken[m] for m, fate in enumerate(fates) if fate.explore}
    explored = config.evolution.strategy.explore(
        exploring, standing, lambda m: generator(config.seed, "mutation", progress.generation, slots[m])
    )
    after = [explored.get(m, values) for m, values in enumerate(taken)]
    stay = [m for m, fate in enumerate(fates) if fate.event != "retired"]
    training.regroup([fates[m].parent for m in stay], [slots[m] for m in stay])
    for place, m in enumerate(stay):
        if fates[m].event == "restarted":
            training.restart(place)
    for entry in progress.history[-1:]:
        entry.pop("results", None)
    progress.history.append(
        {
            "stage": training.stage_name,
            "updates": stage.updates,
            "slots": slots,
            "values": progress.values,
            "parents": [fates[m].parent for m in stay],
            "events": [fates[m].event for m in stay],
            "fitness": [finite_or_none(rate) for rate in rates],
            "results": [[finite_or_none(result) for result in one.results] for one in fitness],
        }
    )
    progress.slots = [slots[m] for m in stay]
    progress.values = {name: [after[m].get(name) for m in stay] for name in progress.values}
    progress.fitness = [
        [finite_or_none(rates[m]), finite_or_none(fitness[m].low), finite_or_none(fitness[m].high)] for m in stay
    ]
    if selects:
        progress.condemned = {}
    checksums = dict(zip(stay, training.checksums(), strict=True))
    return [
        MemberGeneration(
            member=slots[m],
            fitness=rates[m],
            low=fitness[m].low,
            high=fitness[m].high,
            hyperparameters=before[m],
            parent=slots[fates[m].parent],
            event=fates[m].event,
            next_hyperparameters=after[m],
            text=_in_words(m, fates[m], slots, [one.rate for one in fitness], condemned[m], before, after),
            checksum=checksums.get(m, ""),
            better=fates[m].better,
            selected=selects,
        )
        for m in range(members)
    ]


def _taken(fate: Fate, parents: Values) -> Values:
    """Hyperparameters to go on with; never those of a species that the weights are not of."""
    foreign = fate.values is not None and name_of(fate.values) != name_of(parents)
    return dict(parents if fate.values is None or foreign else fate.values)


def due(generation: int, burn_in: int, every: int) -> bool:
    """Whether selection follows generation number `generation` of a stage, counted from 0."""
    return generation + 1 > burn_in and (generation + 1 - burn_in) % every == 0


def _standing(training: Training, fitness: Sequence[Success], rates: list[float]) -> Standing:
    progress, stage = training.progress, training.stage
    asked = 0

    def evaluate(members: Sequence[int]) -> list[list[float]]:
        nonlocal asked
        asked += 1
        return training.evaluate_again(members, asked)

    values = rows(progress.values, len(fitness))
    spaces = {
        one.name: {name: d for name, d in one.space.items() if name in progress.values} for one in training.species
    }
    return Standing(
        stage=training.stage_name,
        slots=list(training.policy.slots),
        generation=progress.stage_generation,
        generations=stage.generations,
        fitness=rates,
        results=[list(one.results) for one in fitness],
        values=values,
        space=spaces.get("", {}),
        spaces={name: space for name, space in spaces.items() if name},
        past=[_past(entry) for entry in progress.history if entry["stage"] == training.stage_name],
        evaluate=evaluate,
    )


def _past(entry: dict[str, Any]) -> Past:
    return Past(
        fitness=[_or_nan(rate) for rate in entry["fitness"]],
        values=rows(entry["values"], len(entry["fitness"])),
        parents=list(entry["parents"]),
        events=list(entry["events"]),
        results=[[_or_nan(result) for result in one] for one in entry.get("results", [])],
    )


def finite_or_none(value: float) -> float | None:
    """As JSON can hold it."""
    return value if math.isfinite(value) else None


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _in_words(
    member: int,
    fate: Fate,
    slots: Sequence[int],
    rates: Sequence[float],
    condemned: str | None,
    before: Sequence[Values],
    after: Sequence[Values],
) -> str:
    """The decision as a sentence; `condemned` is why the member's fitness did not count."""
    own = "no usable fitness" if math.isnan(rates[member]) else f"fitness {rates[member]:.3f}"
    who = f"member {slots[member]} ({own})"
    reason = f"{condemned}, and {fate.reason}" if condemned and fate.parent == member else condemned or fate.reason
    if fate.event == "retired":
        return f"{who} retires: {reason}"
    old, names = before[fate.parent], short_names(sorted(after[member]))
    changes = [
        f"{names[name]} {number(old[name])} to {number(new)}" for name, new in after[member].items() if new != old[name]
    ]
    moved = f"; {', '.join(changes)}" if changes else ""
    if (species := name_of(after[member])) != name_of(before[member]):
        moved = f"; {species} from now on{', with' if changes else ''}{moved.removeprefix(';')}"
    if fate.event == "restarted":
        return f"{who} begins anew: {reason}{moved}"
    if fate.parent == member:
        return f"{who} stays: {reason}{moved}"
    donor = f"member {slots[fate.parent]} (fitness {rates[fate.parent]:.3f})"
    surely = "" if fate.better is None else f", better with probability {fate.better:.2f}"
    return f"{who} becomes a copy of {donor}{surely}: {reason}{moved}"
