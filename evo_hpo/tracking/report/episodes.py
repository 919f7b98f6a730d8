"""A browser of transcripts: what the agent saw, what it said, what it got. Every text in it comes from outside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from evo_hpo.tracking.progress import number
from evo_hpo.tracking.report.data import Record
from evo_hpo.tracking.report.data import number as finite
from evo_hpo.tracking.report.lineage import chip

EMBEDDED = 400  # episodes in the page; more make it slow to open
CHARACTERS = 4_000  # of one text
TURNS = 60  # of one episode
BUDGET = 8_000_000  # characters of all episodes together


def browser(episodes: Sequence[Record]) -> str:
    """The episodes as foldable blocks with filters; says how many did not fit."""
    if not episodes:
        return '<p class="none">No transcripts were kept.</p>'
    shown: list[Record] = []
    blocks: list[str] = []
    size = 0
    for episode in spread(episodes, EMBEDDED):
        block = _episode(episode)
        size += len(block)
        if size > BUDGET and shown:
            break
        shown.append(episode)
        blocks.append(block)
    left_out = len(episodes) - len(shown)
    note = f"{len(shown)} of {len(episodes)} transcripts; {left_out} were left out, and episodes.jsonl has them all."
    count = note if left_out else f"{len(shown)} transcripts."
    filters = "".join(
        _select(name, sorted({_facet(episode, name) for episode in shown}, key=_natural))
        for name in ("generation", "member", "split", "outcome")
    )
    return (
        f'<p class="note">{count}</p><div class="filters">{filters}<span class="hits"></span></div>'
        f'<div class="episodes">{"".join(blocks)}</div>'
    )


def spread(episodes: Sequence[Record], room: int) -> list[Record]:
    """At most `room` episodes, as evenly as can be over generations, splits and members; order is kept."""
    if len(episodes) <= room:
        return list(episodes)
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, episode in enumerate(episodes):
        groups[episode["generation"], str(episode.get("split")), episode["member"]].append(index)
    ranked = sorted((rank, index) for group in groups.values() for rank, index in enumerate(group))
    if len(groups) > room:  # not even one each: every so many groups, so that first and last generations are there
        heads = [index for rank, index in ranked if rank == 0]
        return [episodes[heads[place * len(heads) // room]] for place in range(room)]
    return [episodes[index] for index in sorted(index for _, index in ranked[:room])]


def text(value: Any) -> str:
    """Text from outside as inert HTML: escaped, control characters made visible, cut if long."""
    whole = value if isinstance(value, str) else "" if value is None else str(value)
    kept = whole[:CHARACTERS]
    visible = "".join(
        chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else "�" if 0xD800 <= ord(c) < 0xE000 else c
        for c in kept
    )
    cut = len(whole) - len(kept)
    return escape(visible) + (f'<i class="cut"> … {cut} more characters</i>' if cut else "")


def _episode(episode: Record) -> str:
    turns = episode.get("turns")
    turns = [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    facets = " ".join(
        f'data-{name}="{escape(_facet(episode, name))}"' for name in ("generation", "member", "split", "outcome")
    )
    outcome = _facet(episode, "outcome")
    score = finite(episode.get("outcome"))
    total = sum(finite(turn.get("reward")) or 0.0 for turn in turns)
    facts = [
        f"generation {episode['generation'] + 1}",
        f"task {episode.get('task', '?')}",
        f"{len(turns)} turn{'s' if len(turns) != 1 else ''}",
        f"turn rewards {number(round(total, 6))}",
        *([f"outcome {number(score)}"] if score is not None else []),
        str(episode.get("stop") or ""),
    ]
    body = "".join(_turn(place, turn) for place, turn in enumerate(turns[:TURNS], start=1))
    if len(turns) > TURNS:
        body += f'<p class="note">{len(turns) - TURNS} more turns are in episodes.jsonl.</p>'
    if episode.get("final_observation"):
        body += f'<div class="turn">{_seen("end", episode["final_observation"])}</div>'
    if episode.get("error"):
        body += f'<div class="turn">{_seen("error", episode["error"], "seen bad")}</div>'
    facts_in_a_line = escape(" · ".join(fact for fact in facts if fact))
    return (
        f'<details class="episode" {facets}><summary>{chip(episode["member"])}'
        f'<span class="badge {outcome}">{outcome}</span>{facts_in_a_line}</summary>{body}</details>'
    )


def _turn(place: int, turn: Record) -> str:
    reward = finite(turn.get("reward")) or 0.0
    sign = "plus" if reward > 0 else "minus" if reward < 0 else "zero"
    marks = "".join(
        f'<span class="mark">{mark}</span>'
        for mark, shown in (("not understood", turn.get("valid") is False), ("cut off", turn.get("truncated") is True))
        if shown
    )
    return (
        f'<div class="turn">{_seen(f"turn {place}", turn.get("observation"))}'
        f'<div class="said"><pre>{text(turn.get("action")) or "<i>nothing</i>"}</pre>{marks}'
        f'<span class="reward {sign}">{reward:+.3g}</span></div></div>'
    )


def _seen(label: str, content: Any, kind: str = "seen") -> str:
    return f'<div class="label">{label}</div><pre class="{kind}">{text(content)}</pre>'


def _facet(episode: Record, name: str) -> str:
    if name == "outcome":
        return "success" if episode.get("success") is True else "failure"
    return str(episode["generation"] + 1) if name == "generation" else str(episode.get(name, ""))


def _natural(value: str) -> tuple[bool, int, str]:
    return (False, int(value), "") if value.isdigit() else (True, 0, value)


def _select(name: str, values: Sequence[str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return f'<label>{name} <select data-facet="{name}"><option value="">all</option>{options}</select></label>'
