"""Start a run, or go on with one: folder, trackers, checkpoints and results around `Training`."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError

from algorithms.scorers import RewardModel, ScorerAlgorithm
from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import write
from evo_hpo.config.schema import Config
from evo_hpo.config.species import recorded_spaces, species_of
from evo_hpo.evolution.hyperparameters import evolvable, rows
from evo_hpo.evolution.strategies import Replay
from evo_hpo.learner.pairs import read_pairs, split
from evo_hpo.policy.exchange import export
from evo_hpo.policy.scorers import export_scorer
from evo_hpo.runtime.checkpoints import Checkpoint, CheckpointError, Checkpoints
from evo_hpo.runtime.folder import RunFolder, write_json, write_text
from evo_hpo.runtime.measures import Measure
from evo_hpo.runtime.plan import told
from evo_hpo.runtime.processes import Processes
from evo_hpo.runtime.progress import Progress
from evo_hpo.runtime.resuming import asked_for, refuse_differences, refuse_foreign, refuse_less
from evo_hpo.runtime.setup import population_of, processes_of
from evo_hpo.runtime.signals import terminable
from evo_hpo.runtime.training import Training
from evo_hpo.tracking.console import ConsoleTracker
from evo_hpo.tracking.core import RunInfo, Tracker, Trackers
from evo_hpo.tracking.jsonl import LINEAGE, JsonlTracker, rewind
from evo_hpo.tracking.optuna import OptunaTracker, best_values
from evo_hpo.tracking.secrets import learn, scrub
from evo_hpo.tracking.wandb import WandbTracker

RESULT, SCHEDULE, BEST = "result.json", "schedule.yaml", "best"


def run(config: Config, resolved: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Train from the start. Returns the content of result.json.

    Raises:
        UserError: the folder, device or model cannot be used; nothing was trained then.
    """
    _require_inputs(config)
    processes = processes_of(config)
    folder = Path(processes.same(str(folder)))
    learn(resolved)
    with _owned(folder, config, processes):
        return _work(config, scrub(resolved), folder, processes, None)


def resume(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Go on from the newest checkpoint, or from the one that `generation=N` names; without any, from the start.

    Raises:
        UserError: no intact checkpoint, another process in the folder, or overrides that would change what is learned.
    """
    asked = asked_for(folder, overrides)
    learn(asked.resolved)
    config, resolved = asked.config, scrub(asked.resolved)
    _require_inputs(config)
    processes = processes_of(config)
    with _owned(folder, config, processes):
        checkpoints = Checkpoints(folder, config.checkpoint.keep)
        checkpoint = None
        if checkpoints.generations() or asked.generation is not None:
            checkpoint = checkpoints.load(asked.generation)
            refuse_foreign(checkpoint, folder)
            refuse_differences(checkpoint.state["config"], resolved, folder)
            refuse_less(checkpoint.state["config"], config, Progress.of(checkpoint.state["progress"]))
        if processes.main:
            checkpoints.drop_after(checkpoint.generation if checkpoint else 0)
            rewind(folder, checkpoint.state["offsets"] if checkpoint else {})
            (folder / RESULT).unlink(missing_ok=True)  # that of a run which now goes on
            write(folder, resolved, asked.provenance)
        return _work(config, resolved, folder, processes, checkpoint)


def _require_inputs(config: Config) -> None:
    """Look for what the run reads besides its model, before anything is loaded: keys, stored scorers, pairs.

    Raises:
        UserError: says what is missing.
    """
    try:
        for species in species_of(config):
            species.config.reward.check()
    except ValueError as error:
        raise UserError(str(error)) from error
    if config.evolution.start_from is not None:
        own = evolvable(config)
        best_values(
            config.evolution.start_from, {key: part for key, part in config.evolution.space.items() if key in own}
        )
    for name in config.pipeline.order:
        algorithm = config.pipeline.stages[name].algorithm
        if isinstance(algorithm, RewardModel):
            split(read_pairs(algorithm.data), config.evaluation.held_out)


@contextmanager
def _owned(folder: Path, config: Config, processes: Processes) -> Iterator[None]:
    """Hold the folder, and say how to go on when a run is cut short."""
    lock = RunFolder(folder, config.checkpoint.free_mb) if processes.main else None
    try:
        with terminable():
            yield
    except BaseException as error:
        if _is_memory(error):
            raise UserError(
                f"there is not enough memory ({_reason(error)}); give learner.micro_tokens, rollout.slots, "
                "rollout.max_context or evolution.population a smaller number; what was reached goes on with "
                f"`python launch.py resume={folder} learner.micro_tokens=<number>`"
            ) from error
        if processes.main and not isinstance(error, UserError):
            print(f"continue with: python launch.py resume={folder}", file=sys.stderr)
        raise
    finally:
        if lock is not None:
            lock.release()


def _work(
    config: Config,
    resolved: dict[str, Any],
    folder: Path,
    processes: Processes,
    checkpoint: Checkpoint | None,
) -> dict[str, Any]:
    checkpoints = Checkpoints(folder, config.checkpoint.keep)
    jsonl = JsonlTracker(config.tracker.episodes)
    trackers = Trackers(_trackers(config, jsonl) if processes.main else [])

    def save(training: Training) -> None:
        if processes.main:
            if not any(tracker is jsonl for tracker in trackers.trackers):
                raise CheckpointError(
                    f"the record of generation {training.progress.generation} could not be written to {folder}, so no "
                    f"checkpoint was made of it; earlier ones are intact: free some space and continue with "
                    f"`python launch.py resume={folder}`"
                )
            state = {
                "progress": training.progress.state(),
                "watch": training.watch.state_dict(),
                "offsets": jsonl.offsets(),
                "config": resolved,
            }
            checkpoints.save(training.progress.generation, training.tensors(), state)
        processes.wait()

    training = Training(config, population_of(config, processes.device), processes, trackers, save)
    if checkpoint is not None:
        training.restore(Progress.of(checkpoint.state["progress"]), checkpoint.state["watch"], checkpoint.tensors)
    training.prepare()
    try:
        trackers.start(_info(training, config, resolved, folder))
        if checkpoint is None:
            trackers.note(told(config, [training.policy, *(team.policy for team in training.teams)]))
        result = training.run()
        if isinstance(config.evolution.strategy, Replay):
            from evo_hpo.runtime.replaying import compared

            result["replay"] = compared(result, Path(config.evolution.strategy.of), resolved)
        if processes.main:
            _finish(config, training, trackers, folder, result)
    except BaseException as error:
        trackers.abort(_reason(error))
        raise
    return result


def _info(training: Training, config: Config, resolved: dict[str, Any], folder: Path) -> RunInfo:
    values, stages = training.progress.values, config.pipeline.stages
    members, slots = config.evolution.population, training.policy.slots
    order = {key: number for number, key in enumerate(config.evolution.space)}
    begun: list[dict[str, Any]] = [{} for _ in range(members)]
    for slot, own in zip(slots, rows(values, len(slots)), strict=True):
        begun[slot] = own
    return RunInfo(
        folder=folder,
        name=config.name,
        config=resolved,
        population=members,
        stages=[(name, stages[name].generations, stages[name].updates) for name in config.pipeline.order],
        space=sorted(values, key=lambda key: order.get(key, -1)) or list(order),
        resumed_at=training.progress.generation,
        hyperparameters=begun,
    )


def _finish(config: Config, training: Training, trackers: Trackers, folder: Path, result: dict[str, Any]) -> None:
    """Leave agent, schedule, result and report in the folder, and complete `result`."""
    best = training.policy.slots.index(result["best"]["member"])
    unit = 2**20 if sys.platform == "darwin" else 2**10  # in MB: ru_maxrss counts bytes there, kB elsewhere
    result["peak_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
    try:
        _export(training, best, folder / BEST, result)
        progress, crowned = training.progress, training.progress.crowned
        schedule = progress.schedule(crowned["place"], crowned["generation"]) if crowned else progress.schedule(best)
        write_text(folder / SCHEDULE, yaml.safe_dump(schedule, sort_keys=False))
        result["seconds"] = round(training.seconds, 1)
        write_json(folder / RESULT, result)
        trackers.finish(result)
        report = None
        if config.tracker.report:
            from evo_hpo.tracking.report import write_report

            report = write_report(folder)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"training is complete, but its result could not be written to {folder} ({error}); free some space, and "
            f"`python launch.py resume={folder}` makes it again from the last checkpoint"
        ) from error
    _say(result, folder, report)


def _export(training: Training, best: int, folder: Path, result: dict[str, Any]) -> None:
    """The agent for peft, or the scorer for a reward."""
    algorithm = training.stage.algorithm
    if not isinstance(algorithm, ScorerAlgorithm):
        return export(training.policy, best, folder)
    held_out = {name: result["best"][name] for name in ("success", "low", "high", "episodes")}
    about = result["details"] | {"kind": algorithm.kind, result["measured"]: held_out}
    export_scorer(training.policy, best, folder, about)


def _say(result: dict[str, Any], folder: Path, report: Path | None) -> None:
    """The result, for a person."""
    base, best = result["base"], result["best"]
    agents = result["measured"] == Measure.about
    unmeasured = "no episode could be played" if agents else "no two episodes had different outcomes"

    def rate(of: dict[str, Any]) -> str:
        if of["success"] is None:
            return f"not measurable ({unmeasured})"
        return f"{of['success']:.3f} [{of['low']:.3f}, {of['high']:.3f}]"

    print(
        f"\n{str(result['measured']).capitalize()} on {result['final_tasks']} {result['held_out']} that were never "
        "trained or selected on (95 % intervals):\n"
        f"  base            {rate(base)}\n"
        f"  best member {best['member']:<3} {rate(best)}{_since(result)}\n"
        f"{_counted(result['generations'], 'generation')} of {_counted(result['population'], 'member')} in "
        f"{result['seconds']:.0f} s, "
        f"{result['policy_tokens']:,} sampled tokens, {result['environment_turns']:,} turns, "
        f"{_counted(len(result['alarms']), 'alarm')}"
    )
    if "replay" in result:
        original, arms = result["replay"]["original"], result["replay"]["arms"]
        print(f"Replay of {result['replay']['of']}, success of each agent trained from scratch:")
        if result["replay"]["changed"]:
            print(f"  changed against the original: {', '.join(result['replay']['changed'])}")
        print(f"  along its schedule        {_listed(arms['schedule'])}")
        print(f"  with its last values      {_listed(arms['final'])}")
        print(f"  the agent that found it   {rate(original) if original else 'not known'}")
    places = [
        ("report", report),
        ("lineage", folder / LINEAGE),
        ("schedule", folder / SCHEDULE),
        ("adapter" if agents else "scorer", folder / BEST),
    ]
    if not agents and best["low"] is not None and best["low"] <= 0.5:
        print("  It is not shown to order held-out pairs better than chance: train it longer, or on more.")
    if calibration := result["details"].get("calibration"):
        print(f"  its probabilities are off by {calibration['expected_error']:.3f} on average (ECE)")
    for name, path in places:
        if path is not None:
            print(f"  {name:<9} {path}")


def _since(result: dict[str, Any]) -> str:
    """When the agent was taken, where that was not at the end."""
    taken, last = result["best"]["generations"], result["generations"]
    return "" if taken == last else f", as it was after generation {taken} of {last}"


def _listed(rates: list[float]) -> str:
    mean = f", mean {sum(rates) / len(rates):.3f}" if rates else ""
    return f"{' '.join(f'{rate:.3f}' for rate in rates)}{mean}"


def _trackers(config: Config, jsonl: JsonlTracker) -> list[Tracker]:
    settings = config.tracker
    trackers: list[Tracker] = [jsonl, ConsoleTracker(settings.console)]
    if settings.optuna and any((spaces := recorded_spaces(config)).values()):
        trackers.append(OptunaTracker(spaces))
    if settings.wandb != "disabled":
        trackers.append(
            WandbTracker(settings.wandb, settings.wandb_project, settings.wandb_entity, list(settings.tags))
        )
    return trackers


def _is_memory(error: BaseException) -> bool:
    """Whether memory ran out: numpy's error, torch's on a GPU, or torch's on a CPU, which has no class of its own."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return f"stopped by {str(error) or 'Ctrl-C'}"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
