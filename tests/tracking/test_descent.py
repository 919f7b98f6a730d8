"""What a lineage says about the population as a whole."""

from __future__ import annotations

from typing import Any

from evo_hpo.tracking.report.descent import descent


def generation(number: int, *parents: int, **events: str) -> list[dict[str, Any]]:
    """A line for each member; `m2="retired"` is the event of member 2."""
    return [
        {"generation": number, "member": m, "parent": parent, "event": events.get(f"m{m}", "kept")}
        for m, parent in enumerate(parents)
    ]


def test_a_line_takes_over_when_all_descend_from_one_founder() -> None:
    told = descent([*generation(0, 0, 1, 1, 3), *generation(1, 1, 1, 2, 2), *generation(2, 0, 1, 2, 3)])
    assert told.lines == [3, 1, 1] and told.takeover == 2
    assert told.copies == 3 and told.donor == (1, 2 / 3)
    assert told.untouched == 1 / 3


def test_nobody_takes_over_where_nobody_is_copied() -> None:
    told = descent([*generation(0, 0, 1), *generation(1, 0, 1)])
    assert (told.lines, told.takeover, told.copies, told.donor, told.untouched) == ([2, 2], None, 0, None, 1.0)


def test_who_begins_anew_founds_a_line_and_who_retires_ends_one() -> None:
    assert descent(generation(0, 0, 0, 0, m2="restarted")).lines == [2]
    left = [*generation(0, 0, 0), *generation(1, 0, 1, m0="restarted")]  # the line that began in its slot lives on in 1
    assert descent(left).lines == [1, 2]
    told = descent([*generation(0, 0, 1, 2, m2="retired"), *generation(1, 0, 0)])
    assert told.lines == [2, 1] and told.takeover == 2


def test_one_member_has_nothing_to_take_over() -> None:
    assert descent(generation(0, 0)).takeover is None
    assert descent([]).lines == []
