"""What a lineage says about the population as a whole."""

from __future__ import annotations

from typing import Any

from evo_hpo.evolution.descent import lineages
from evo_hpo.tracking.report.descent import descent


def generation(number: int, *parents: int, selected: bool = True, **events: str) -> list[dict[str, Any]]:
    """A line for each member; `m2="retired"` is the event of member 2, which is `cloned` if another is its parent."""
    return [
        {
            "generation": number,
            "member": m,
            "parent": parent,
            "event": events.get(f"m{m}", "kept" if parent == m else "cloned"),
            "selected": selected,
        }
        for m, parent in enumerate(parents)
    ]


def test_a_line_takes_over_when_all_descend_from_one_founder() -> None:
    told = descent([*generation(0, 0, 1, 1, 3), *generation(1, 1, 1, 2, 2), *generation(2, 0, 1, 2, 3)])
    assert told.lines == [3, 1, 1] and told.takeover == 2
    assert told.copies == 3 and (told.donors, told.given) == ([1], 2 / 3)
    assert told.untouched == 1 / 3


def test_nobody_takes_over_where_nobody_is_copied() -> None:
    told = descent([*generation(0, 0, 1), *generation(1, 0, 1)])
    assert (told.lines, told.takeover, told.copies, told.donors, told.untouched) == ([2, 2], None, 0, [], 1.0)


def test_members_that_gave_equally_often_are_all_named() -> None:
    told = descent([*generation(0, 0, 1, 2, 2, 2), *generation(1, 0, 1, 2, 1, 1)])
    assert (told.copies, told.donors, told.given) == (4, [1, 2], 0.5)


def test_generations_that_nobody_was_selected_after_do_not_count_as_quiet() -> None:
    steps = [*generation(0, 0, 0), *generation(1, 0, 1, selected=False), *generation(2, 0, 1)]
    assert descent(steps).untouched == 0.5
    assert descent(generation(0, 0, 1, selected=False)).untouched is None


def test_who_leaves_or_begins_anew_loses_its_place() -> None:
    for event in ("retired", "restarted", "rescued", "injected"):
        assert descent([*generation(0, 0, 1, m1=event), *generation(1, 0, 1)]).untouched == 0.5
    assert descent(generation(0, 0, 1, m1="elite")).untouched == 1.0


def test_an_injected_member_begins_a_line_as_it_does_for_the_strategy() -> None:
    steps = [generation(0, 0, 0, 0), generation(1, 0, 1, 0, m2="injected")]
    told = descent([line for step in steps for line in step])
    assert told.lines == [1, 2] and told.copies == 3
    strategy = lineages([([line["parent"] for line in step], [line["event"] for line in step]) for step in steps])
    assert told.lines[-1] == strategy


def test_who_begins_anew_founds_a_line_and_who_retires_ends_one() -> None:
    assert descent(generation(0, 0, 0, 2, m2="restarted")).lines == [2]
    left = [*generation(0, 0, 0), *generation(1, 0, 1, m0="restarted")]  # the line that began in its slot lives on in 1
    assert descent(left).lines == [1, 2]
    told = descent([*generation(0, 0, 1, 2, m2="retired"), *generation(1, 0, 0)])
    assert told.lines == [2, 1] and told.takeover == 2


def test_one_member_has_nothing_to_take_over() -> None:
    assert descent(generation(0, 0)).takeover is None
    assert descent([]).lines == []
