"""The comparison as text."""

from __future__ import annotations

from collections.abc import Sequence

from evo_hpo.tracking.compare.arms import BUDGETS, Arm, common_budget, remarks
from evo_hpo.tracking.compare.statistics import ENOUGH, Estimate, improvement, iqm
from evo_hpo.tracking.progress import count

NOTE = (
    "A run is one repeat, however many members it has. Fitness: of the best member in the generation that ended "
    "nearest to the budget, which every run had spent. Success: of the best member on the final tasks, at the end of "
    "its run. IQM: mean of the middle half of the runs, with 95 % bootstrap intervals; fewer than "
    f"{ENOUGH} runs are shown as they are. P(better): probability that a run has more success than one of the first "
    "line."
)


def rows(arms: Sequence[Arm], budget: str) -> list[dict[str, str]]:
    """One row per setting: label, what its runs cost, fitness at equal budget, success, and against the first one."""
    spent = common_budget(arms, budget)
    found = []
    for arm in arms:
        fitness = arm.fitness_at(budget, spent)
        enough = min(len(arm.successes), len(arms[0].successes)) >= ENOUGH
        against = shown(improvement(arm.successes, arms[0].successes)) if enough else "too few runs"
        found.append(
            {
                "setting": arm.label,
                "runs": str(len(arm.runs)),
                "generations": _span([run.generations for run in arm.runs]),
                BUDGETS[budget]: _span([run.total(budget) for run in arm.runs]),
                f"fitness at {count(spent)} {BUDGETS[budget]}": points_or_iqm(fitness),
                "success on final tasks": points_or_iqm(arm.successes),
                "P(better)": "" if arm is arms[0] else against,
            }
        )
    return found


def print_table(arms: Sequence[Arm], budget: str) -> None:
    """Print the rows, aligned."""
    table = rows(arms, budget)
    names = list(table[0])
    widths = {name: max(len(name), *(len(row[name]) for row in table)) for name in names}
    for line in (dict.fromkeys(names, "") | {name: name for name in names}, *table):
        print("  ".join(line[name].ljust(widths[name]) for name in names).rstrip())
    print("\n".join([NOTE, *remarks(arms)]))


def points_or_iqm(values: Sequence[float]) -> str:
    """All values where they are few, else their IQM with its interval."""
    if not values:
        return "none"
    if len(values) < ENOUGH:
        return " ".join(f"{value:.3f}" for value in sorted(values))
    return shown(iqm(values))


def shown(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return count(low) if low == high else f"{count(low)} to {count(high)}"
