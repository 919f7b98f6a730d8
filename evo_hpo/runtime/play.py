"""`play`: watch a member, or the base, act turn by turn."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

from rich.console import Console
from rich.text import Text

from envs.core import Episode, Turn
from evo_hpo.config.schema import Config
from evo_hpo.policy.noise import key
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.rollout.fused import FusedSampler
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.rollout.runner import Assignment
from evo_hpo.rollout.runner import play as play_episodes
from evo_hpo.runtime.members import stored_member
from evo_hpo.runtime.setup import population_of, processes_of
from evo_hpo.runtime.tasks import Tasks


def play(source: Config | Path, member: str, task: int | None, episodes: int, temperature: float | None) -> None:
    """Play `episodes` one after another and print each.

    On tasks of the result, at the temperature of evaluation, the episodes are those that the result was measured on.

    Args:
        source: a run folder, or a config, whose model then acts as it is before training.
        member: "best" or a number; means nothing for a config.
        task: seed of the first task, counted up from there; None: tasks never trained or selected on.
        temperature: of sampling; None: that of evaluation.
    Raises:
        UserError: the run or the model cannot be loaded, or the environment has too few tasks.
    """
    if isinstance(source, Path):
        stored = stored_member(source, member)
        config, policy, name = stored.config, stored.policy, stored.name
    else:
        config, policy, name = source, population_of(source, processes_of(source).device, 1), "the base"
    pool = EnvironmentPool(config.rollout.threads, config.rollout.step_timeout)
    if task is None:
        tasks = Tasks(config.env, config.evaluation.held_out, config.seed, pool).of("final", episodes)
    else:
        tasks = list(range(task, task + episodes))
    console = Console(highlight=False)
    console.print(Text(f"{name} in {type(config.env).__name__}", style="bold"))
    succeeded = 0
    for number in tasks:
        episode = _episode(config, policy, pool, number, temperature or config.evaluation.temperature)
        succeeded += episode.success
        _show(console, episode)
    if episodes > 1:
        console.print(f"\n{succeeded} of {episodes} episodes succeeded")


def _episode(config: Config, policy: Policy, pool: EnvironmentPool, task: int, temperature: float) -> Episode:
    rollout = config.rollout
    sampler = FusedSampler(policy, Sampling.same(1, temperature), 1, rollout.max_action_tokens, rollout.max_context)
    [episode] = play_episodes(
        sampler,
        policy.base.chat,
        config.env,
        [Assignment(0, 0, task, key("final", task))],
        pool,
        rollout.max_action_tokens,
        rollout.max_context,
        config.model.instructions,
        0,
    )
    return episode


def _show(console: Console, episode: Episode) -> None:
    console.print(f"\ntask {episode.task}")
    for number, turn in enumerate(episode.turns, start=1):
        console.print(_observation(turn.observation))
        console.print(
            Text.assemble(f"{number:>2}  ", (visible(turn.action) or "(nothing)", "bold cyan"), _remarks(turn))
        )
    if episode.final_observation:
        console.print(_observation(episode.final_observation))
    reason = visible(episode.error) or str(episode.stop).replace("_", " ")
    verdict, colour = ("success", "green") if episode.success else ("no success", "red")
    console.print(Text.assemble((verdict, colour), f" after {len(episode.turns)} turns ({reason})"))


def _observation(text: str) -> Text:
    return Text(indent(visible(text), "    "), style="dim")


def _remarks(turn: Turn) -> str:
    remarks = [f"reward {turn.reward:g}"] if turn.reward else []
    if not turn.valid:
        remarks.append("not understood")
    if turn.truncated:
        remarks.append("cut off")
    return f"   {', '.join(remarks)}" if remarks else ""


def visible(text: str) -> str:
    """`text` with control characters spelled out, so that what an agent says cannot steer the terminal."""
    return "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in text)
