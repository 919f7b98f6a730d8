"""`prefs`: preference pairs from the transcripts of runs, better against worse episode of one group."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import IO, Any, Literal

from envs.core import Environment, StopReason
from evo_hpo.config.build import build
from evo_hpo.config.errors import UserError
from evo_hpo.runtime.resuming import stored_config
from evo_hpo.tracking.jsonl import EPISODES, read_jsonl
from evo_hpo.tracking.transcripts import Transcript

Split = Literal["train", "fitness", "all"]
SPLITS = {"train": ("train",), "fitness": ("fitness",), "all": ("train", "fitness")}  # never final: that is the result
GROUP = ("split", "generation", "update", "member", "group", "task")
NEEDED = {*GROUP, "outcome", "success", "stop", "turns"} - {"update"}  # which earlier versions did not store


def build_pairs(runs: Sequence[Path], target: Path, split: Split, margin: float, per_group: int) -> int:
    """Write pairs to `target`, in the format that `learner.pairs` reads, and print how many groups gave some.

    A group is what one member played of one task in one update (or in one measurement). Its episodes are compared by
    their score under the run's reward, where all have one, else by success. The two that are furthest apart come
    first. Episodes that broke, that say the same, or that were shown different beginnings are not paired.

    Args:
        runs: run folders, finished or not.
        target: a file that does not exist yet; it is there when it is complete.
        split: which episodes: of training, of measuring fitness, or both.
        margin: scores must differ by more than this, in the unit of the reward.
        per_group: pairs of a group at most.
    Returns:
        The number of pairs.
    Raises:
        UserError: `target` exists or cannot be written, a run cannot be read, or there are no pairs.
    """
    if target.exists():
        raise UserError(f"{target} exists already; name a file that does not")
    scratch = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(scratch, "w", encoding="utf-8") as file:
            pairs = _write(file, list({run.resolve(): run for run in runs}.values()), split, margin, per_group)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written ({error.strerror}); free some space, or name another file"
        ) from error
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
    return pairs


def _write(file: IO[str], runs: Sequence[Path], split: Split, margin: float, per_group: int) -> int:
    pairs = groups = alone = taught = 0
    for run in runs:
        found = _groups(run, split)
        opening = Openings(run)
        for group in found:
            chosen = list(_chosen(group, margin, per_group))
            for better, worse in chosen:
                file.write(json.dumps(opening.of(better) | _sides(better, worse)) + "\n")
            groups, alone = groups + 1, alone + (len(group) == 1)
            pairs, taught = pairs + len(chosen), taught + bool(chosen)
    if not pairs:
        names = ", ".join(run.name for run in runs)
        if alone == groups:
            raise UserError(
                f"{names}: no group has two episodes among the transcripts of split {split} that were kept; take a run "
                "that plays groups (not algorithm=sft) with tracker.episodes=1000, which keeps them all"
                + ("" if split == "train" else ", and with evaluation.repeats=4, which plays fitness tasks repeatedly")
            )
        raise UserError(
            f"{names}: in none of {groups} groups does one episode score more than {margin:g} above another that says "
            "something else; run longer or with a larger rollout.group_size, or lower --margin"
        )
    print(f"{taught} of {groups} groups give pairs; {alone} have one episode only")
    return pairs


def _groups(run: Path, split: Split) -> list[list[Transcript]]:
    """Episodes that can be compared, in the order they were played.

    Raises:
        UserError: the run kept no transcripts of the split, or the file was altered.
    """
    groups: dict[tuple[Any, ...], list[Transcript]] = {}
    try:
        for episode in read_jsonl(run / EPISODES):
            missing = NEEDED - episode.keys()
            if missing:
                raise ValueError(f"an episode has no {min(missing)}")
            if episode["split"] in SPLITS[split] and not _broke(episode) and _said(episode):
                groups.setdefault(tuple(episode.get(name) for name in GROUP), []).append(episode)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{run / EPISODES} cannot be read ({error}); put back what the run wrote") from error
    if not groups:
        raise UserError(
            f"{run} kept no transcripts of split {split}; take a run that plays (not algorithm=reward_model), with "
            "tracker.episodes=1000"
        )
    return list(groups.values())


def _broke(episode: Transcript) -> bool:
    return episode["stop"] is not None and StopReason(episode["stop"]).failed


def _chosen(group: Sequence[Transcript], margin: float, most: int) -> Iterator[tuple[Transcript, Transcript]]:
    """(better, worse), at most `most` of them: the largest difference first, then episodes that were not used yet."""
    scored = all(episode["outcome"] is not None for episode in group)
    scores = [float(episode["outcome"] if scored else episode["success"]) for episode in group]
    ranks = sorted(range(len(group)), key=lambda i: -scores[i])
    apart = [
        (scores[i] - scores[j], abs(high - low), i, j)
        for (high, i), (low, j) in product(enumerate(ranks), enumerate(reversed(ranks)))
        if scores[i] - scores[j] > margin
    ]
    taken: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    for _, _, i, j in sorted(apart, key=lambda pair: (-pair[0], pair[1])):
        texts = (_said(group[i]), _said(group[j]))
        if len(taken) < most and texts not in taken and texts[0] != texts[1] and texts[0][0] == texts[1][0]:
            taken.add(texts)
            yield group[i], group[j]


def _said(episode: Transcript) -> tuple[str, ...]:
    """What was shown and said in turn, up to the last action."""
    return tuple(text for turn in episode["turns"] for text in (turn["observation"], turn["action"]))


def _sides(better: Transcript, worse: Transcript) -> dict[str, list[dict[str, str]]]:
    roles = ("user", "assistant")
    return {
        name: [{"role": roles[place % 2], "content": text} for place, text in enumerate(_said(episode))][1:]
        for name, episode in (("chosen", better), ("rejected", worse))
    }


class Openings:
    """What came before the first action of a run's episodes, and which task it was.

    Raises:
        UserError: the run's config cannot be built any more; from `of`, the environment cannot start a task.
    """

    def __init__(self, run: Path) -> None:
        config = build(stored_config(run))
        self.environment, self.instructed = config.env, config.model.instructions
        self._known: dict[int, tuple[str, str]] = {}

    def of(self, episode: Transcript) -> dict[str, Any]:
        """`task` and `prompt` of a pair. Tasks are the same where `runtime.tasks` takes them to be."""
        number = int(episode["task"])
        if number not in self._known:
            self._known[number] = self._asked(number)
        task, instructions = self._known[number]
        system = [{"role": "system", "content": instructions}] if instructions else []
        return {"task": task, "prompt": [*system, {"role": "user", "content": episode["turns"][0]["observation"]}]}

    def _asked(self, number: int) -> tuple[str, str]:
        """(identity, instructions) of a task."""
        by_seed = f"seed {number}"
        if not self.instructed and type(self.environment).task_key is Environment.task_key:
            return by_seed, ""
        fresh = self.environment.fresh()
        try:
            fresh.reset(number)
            return fresh.task_key() or by_seed, fresh.instructions if self.instructed else ""
        except Exception as error:  # whatever somebody's environment raises
            raise UserError(
                f"{type(fresh).__name__} cannot start task {number} to say what its instructions are "
                f"({type(error).__name__}: {error}); make it work as it did in the run"
            ) from error
        finally:
            fresh.close()
