"""What must hold for a search space."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from evo_hpo.config.errors import Problems
from evo_hpo.config.explain import nearest
from evo_hpo.config.facts import Facts, Violation
from evo_hpo.config.schema import Dimension
from evo_hpo.config.validate import checked, from_where, show


def relative_ranges_hold_the_own_value(facts: Facts) -> Iterator[Violation]:
    """Before ranges are made absolute, which hides that an end is a multiple."""
    for key, dimension in facts.config.evolution.space.items():
        low, high = dimension.low, dimension.high
        if dimension.relative and low is not None and high is not None and low < high and not low <= 1 <= high:
            yield Violation(
                f"evolution.space.{key} is relative and runs from {low:g} to {high:g} times the value of {key}, which "
                "leaves that value itself out",
                f"write {'low: 1' if low > 1 else 'high: 1'}, or change {key} and give multiples of that",
            )


def space_is_legal(facts: Facts) -> Iterator[Violation]:
    space = facts.config.evolution.space
    if not space:
        return
    from evo_hpo.evolution.hyperparameters import evolvable, types_of

    values, types = evolvable(facts.config), types_of(facts.config)
    if unknown := [key for key, dimension in space.items() if key not in values and not dimension.optional]:
        guesses = {key: nearest(key, values, cutoff=0.9) for key in unknown}
        told = " and ".join(f"{key}{f' (did you mean {guess}?)' if guess else ''}" for key, guess in guesses.items())
        source = from_where(f"evolution.space.{unknown[0]}", facts.provenance)
        yield Violation(
            f"evolution.space has {told}, which cannot evolve in this run{source}",
            f"write optional: true to leave it out where it is missing, or choose among {', '.join(sorted(values))}",
        )
    for key, dimension in space.items():
        if key in values:
            where = f"evolution.space.{key}"
            senseless = list(_dimension_is_legal(where, key, dimension, values[key]))
            unfit = senseless or list(_every_value_is_legal(where, dimension, types[key]))
            yield from unfit or _every_value_goes_with_the_rest(facts, where, key, dimension)


def _dimension_is_legal(where: str, key: str, dimension: Dimension, value: Any) -> Iterator[Violation]:
    if dimension.relative:
        yield Violation(
            f"{where} is relative to {key}, which is {show(key, value)}",
            f"give {key} a number other than 0, or write relative: false",
        )
        return
    if dimension.type == "categorical":
        if not dimension.choices:
            yield Violation(f"{where} is categorical and has no choices", "write choices: [...]")
        elif value not in dimension.choices:
            shown = show(key, value)
            yield Violation(f"{key} starts at {shown}, which is no choice of {where}", f"add {shown} to the choices")
        if dimension.low is not None or dimension.high is not None or dimension.log:
            yield Violation(f"{where} is categorical, so low, high and log mean nothing", "leave them out")
        return
    if dimension.choices is not None:
        yield Violation(f"{where} is a range, so choices mean nothing", "leave them out, or write type: categorical")
    low, high = dimension.low, dimension.high
    if low is None or high is None:
        yield Violation(f"{where} has no end", "write both low and high")
        return
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        yield Violation(f"{where} runs from {low:g} to {high:g}", "write a low that is less than high")
        return
    if dimension.log and low <= 0:
        yield Violation(f"{where} is logarithmic and starts at {low:g}", "write a low above 0, or log: false")
    if dimension.type == "int" and not (low.is_integer() and high.is_integer()):
        yield Violation(f"{where} holds whole numbers and runs from {low:g} to {high:g}", "write whole numbers")
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield Violation(f"{key} is {show(key, value)}, and {where} is a range of numbers", "write type: categorical")
        return
    if dimension.type == "float" and isinstance(value, int):
        yield Violation(f"{key} is a whole number, and {where} is not", "write type: int")
    if not low <= value <= high:
        yield Violation(
            f"{key} starts at {value:g}, outside the range {low:g} to {high:g} of {where}",
            f"start inside it, for example {key}={low if value < low else high:g}, or widen the range",
        )


def _every_value_is_legal(where: str, dimension: Dimension, hint: Any) -> Iterator[Violation]:
    """The ends of a range, or the choices, against the type and range that the key itself has."""
    ends = {"low": dimension.low, "high": dimension.high}
    told: dict[str, Any] = {name: end for name, end in ends.items() if end is not None}
    if dimension.type == "int":
        told = {name: int(end) for name, end in told.items()}
    elif dimension.type == "categorical":
        told = {f"choices.{index}": choice for index, choice in enumerate(dimension.choices or ())}
    problems = Problems()
    for name, value in told.items():
        checked(hint, value, f"{where}.{name}", {}, problems)
    for sentence in problems.by_key.values():
        yield Violation(sentence, "keep the space inside what the key may be")


def _every_value_goes_with_the_rest(facts: Facts, where: str, key: str, dimension: Dimension) -> Iterator[Violation]:
    """The ends of a range, or the choices, put into the component that has the key, which may refuse them."""
    from evo_hpo.evolution.hyperparameters import of_part, with_value

    config, root = facts.config, key.partition(".")[0]
    parts = list(facts.algorithms.values()) if root == "algorithm" else [getattr(config, root)]
    for part in parts:
        if root == "rollout" or key not in of_part(part, root):
            continue
        for end in dimension.choices or (dimension.low, dimension.high):
            value = int(end) if dimension.type == "int" else end  # type: ignore[arg-type]
            try:
                with_value(part, key, value)
            except ValueError as error:
                yield Violation(f"{where} goes to {show(key, value)}, where {error}", "or keep the space away from it")
                return
