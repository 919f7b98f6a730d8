"""Start a run, or go on with one: folder, trackers, checkpoints and results around `Training`."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from evo_hpo.config.build import build
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config
from evo_hpo.policy.exchange import export
from evo_hpo.runtime.checkpoints import Checkpoints
from evo_hpo.runtime.folder import RunFolder, write_json
from evo_hpo.runtime.processes import Processes
from evo_hpo.runtime.progress import Progress
from evo_hpo.runtime.setup import population_of, processes_of
from evo_hpo.runtime.training import Training
from evo_hpo.tracking.console import ConsoleTracker
from evo_hpo.tracking.core import RunInfo, Tracker, Trackers
from evo_hpo.tracking.jsonl import JsonlTracker, rewind
from evo_hpo.tracking.secrets import scrub
from evo_hpo.tracking.wandb import WandbTracker



def run(config: Config, resolved: Mapping[str, Any], provenance: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Train from the start. Returns the content of result.json.

    Raises:
        UserError: the folder, device or model cannot be used; nothing was trained then.
    """
    processes = processes_of(config)
    folder = Path(processes.same(str(folder)))
    return _work(config, resolved, folder, processes, None)


def resume(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Go on from the newest checkpoint, or from the one that `generation=N` names.

    Raises:
        UserError: no intact checkpoint, another process in the folder, or overrides that would change what is learned.
    """
    generation = None
    settings = []
    for override in overrides:
        name, _, value = override.partition("=")
        if name == "generation":
            generation = int(value)
        else:
            settings.append(override)
    stored = yaml.safe_load((folder / "config.yaml").read_text())
    resolved = OmegaConf.to_container(OmegaConf.merge(stored, OmegaConf.from_dotlist(settings)))
    assert isinstance(resolved, dict)
    config = build(resolved)
    processes = processes_of(config)
    return _work(config, resolved, folder, processes, (generation,))


def _work(
    config: Config, resolved: Mapping[str, Any], folder: Path, processes: Processes, resumed: tuple[int | None] | None
) -> dict[str, Any]:
    lock = RunFolder(folder, config.checkpoint.free_mb) if processes.main else None
    try:
        return _locked(config, scrub(resolved), folder, processes, resumed)
    finally:
        if lock is not None:
            lock.release()


def _locked(
    config: Config, resolved: Mapping[str, Any], folder: Path, processes: Processes, resumed: tuple[int | None] | None
) -> dict[str, Any]:
    checkpoints = Checkpoints(folder, config.checkpoint.keep)
    loaded = checkpoints.load(resumed[0]) if resumed is not None and checkpoints.generations() else None
    if loaded is not None:
        _refuse_differences(loaded[2]["config"], resolved, folder)
    policy = population_of(config, processes.device)
    jsonl = JsonlTracker(config.tracker.episodes)
    trackers = Trackers(_trackers(config, jsonl) if processes.main else [])

    def save(training: Training) -> None:
        if processes.main:
            state = {
                "progress": training.progress.state(),
                "watch": training.watch.state_dict(),
                "offsets": jsonl.offsets(),
                "config": resolved,
            }
            checkpoints.save(training.progress.generation, training.tensors(), state)
        processes.wait()

    training = Training(config, policy, processes, trackers, save)
    if loaded is not None:
        _, tensors, state = loaded
        training.restore(Progress.of(state["progress"]), state["watch"], tensors)
    if processes.main and resumed is not None:
        checkpoints.drop_after(training.progress.generation)
        rewind(folder, loaded[2]["offsets"] if loaded is not None else {})
    trackers.start(
        RunInfo(
            folder=folder,
            name=config.name,
            config=dict(resolved),
            population=policy.members,
            stages=[(name, config.pipeline.stages[name].generations, config.pipeline.stages[name].updates) for name in config.pipeline.order],
            space=sorted(training.progress.values) or sorted(config.evolution.space),
            resumed_at=training.progress.generation,
        )
    )
    try:
        result = training.run()
    except BaseException as error:
        trackers.abort(_reason(error))
        if processes.main and not isinstance(error, UserError):
            print(f"continue with: python launch.py resume={folder}", file=sys.stderr)
        raise
    return _finish(config, training, trackers, folder, processes, result)


def _finish(
    config: Config, training: Training, trackers: Trackers, folder: Path, processes: Processes, result: dict[str, Any]
) -> dict[str, Any]:
    if not processes.main:
        return result
    export(training.policy, result["best"]["member"], folder / "best")
    (folder / "schedule.yaml").write_text(yaml.safe_dump(training.progress.schedule(result["best"]["member"]), sort_keys=False))
    result["peak_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    result["seconds"] = round(training.seconds, 1)
    write_json(folder / "result.json", result)
    trackers.finish(result)
    report = None
    if config.tracker.report:
        from evo_hpo.tracking.report import write_report

        report = write_report(folder)
    result["seconds"] = round(training.seconds, 1)
    write_json(folder / "result.json", result)
    _say(result, folder, report)
    return result


def _say(result: dict[str, Any], folder: Path, report: Path | None) -> None:
    """The result, for a person."""
    base, best = result["base"], result["best"]

    def rate(of: dict[str, Any]) -> str:
        if of["success"] is None:
            return "not measurable (no episode could be played)"
        return f"{of['success']:.3f} [{of['low']:.3f}, {of['high']:.3f}]"

    print(
        f"\nSuccess on {result['final_tasks']} tasks that were never trained or selected on (95 % intervals):\n"
        f"  base            {rate(base)}\n"
        f"  best member {best['member']:<3} {rate(best)}\n"
        f"{result['generations']} generations of {result['population']} members in {result['seconds']:.0f} s, "
        f"{result['policy_tokens']:,} sampled tokens, {result['environment_turns']:,} turns, {len(result['alarms'])} alarms"
    )
    places = [("report", report), ("lineage", folder / "lineage.jsonl"), ("schedule", folder / "schedule.yaml"), ("adapter", folder / "best")]
    for name, path in places:
        if path is not None:
            print(f"  {name:<9} {path}")


def _trackers(config: Config, jsonl: JsonlTracker) -> list[Tracker]:
    settings = config.tracker
    trackers: list[Tracker] = [jsonl, ConsoleTracker(settings.console)]
    if settings.wandb != "disabled":
        trackers.append(WandbTracker(settings.wandb, settings.wandb_project, settings.wandb_entity, list(settings.tags)))
    return trackers


def _refuse_differences(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    old, new = _flat(before), _flat(now)
    different = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name) and not _changeable(name)]
    if different:
        lines = [f"{name} was {old.get(name)!r} and is now {new.get(name)!r}" for name in different]
        raise UserError(
            f"a resumed run must go on as it began, and {'; '.join(lines)}; leave that as it was, or start a new run "
            f"(from this one's agent with model.lora.start={folder}/best)"
        )


def _changeable(name: str) -> bool:
    if name.startswith(("tracker.", "checkpoint.")) or name == "on_alarm":
        return True
    parts = name.split(".")
    return parts[:2] == ["pipeline", "stages"] and parts[-1] == "generations"


def _flat(tree: Any, above: str = "") -> dict[str, Any]:
    if not isinstance(tree, Mapping):
        return {above: tree}
    return {name: value for key, node in tree.items() for name, value in _flat(node, f"{above}.{key}" if above else str(key)).items()}


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
