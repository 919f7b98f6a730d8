"""Weights & Biases: a run per member slot and one for the population, in one group. It can never hold training up."""

from __future__ import annotations

import netrc
import os
import queue
import secrets
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from evo_hpo.tracking.core import Alarm, GenerationRecord, RunInfo, Tracker, UpdateRecord
from evo_hpo.tracking.jsonl import LINEAGE, plain, read_jsonl
from evo_hpo.tracking.progress import short_names
from evo_hpo.tracking.secrets import scrub
from evo_hpo.tracking.turnwise import parsed

Mode = Literal["offline", "online", "disabled"]
FOLDER = "wandb"  # inside the run folder; `wandb sync <run folder>/wandb/offline-run-*` uploads what is there
QUEUE_SIZE = 10_000  # records that may wait for W&B before more are dropped
OF_MEMBERS = frozenset(  # charts of a member's run, besides the parts of its reward; the rest is shown as a mean
    {
        "loss", "value_loss", "grad_norm", "critic_grad_norm", "finite", "entropy", "kl", "kl_old", "ratio_max",
        "clip_fraction_low", "clip_fraction_high", "ess", "explained_variance", "preference_accuracy", "reward",
        "reward_std", "group_std", "zero_spread", "success", "turns", "valid", "truncated", "action_tokens", "failed",
    }
)  # fmt: skip


@dataclass
class WandbTracker(Tracker):
    """Sends records to W&B from a thread of its own, so that a slow or silent server costs training nothing.

    What goes wrong in that thread is raised by the next call, for `Trackers` to report. If the server cannot be reached
    at the start, the runs are written offline. A resumed run continues the same W&B runs; updates that were sent after
    the checkpoint are sent again with the same step.

    Args:
        mode: `auto` is online where an API key is known (`WANDB_API_KEY` or `wandb login`), else offline.
        project: W&B project.
        entity: team or user that owns the project; None leaves the account's default.
        tags: on every run.
        init_timeout: seconds the server may take to answer before the runs are written offline.
        finish_timeout: seconds that uploads may take at the end of the run.
    """

    mode: Mode | Literal["auto"] = "auto"
    project: str = "evo-hpo"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)
    init_timeout: float = 20.0
    finish_timeout: float = 60.0
    _queue: queue.Queue[tuple[str, tuple[Any, ...]]] = field(
        default_factory=lambda: queue.Queue(QUEUE_SIZE), init=False, repr=False
    )
    _thread: threading.Thread | None = field(default=None, init=False, repr=False)
    _error: Exception | None = field(default=None, init=False, repr=False)
    _dropped: int = field(default=0, init=False, repr=False)

    def start(self, run: RunInfo) -> None:
        mode = choose_mode(self.mode)
        if mode != "disabled":
            self._thread = threading.Thread(target=self._work, args=(run, mode), name="wandb", daemon=True)
            self._thread.start()

    def update(self, record: UpdateRecord) -> None:
        self._send("update", record)

    def generation(self, record: GenerationRecord) -> None:
        self._send("generation", record)

    def alarm(self, alarm: Alarm) -> None:
        self._send("alarm", alarm)

    def finish(self, result: dict[str, Any]) -> None:
        self._end("finish", result, within=self.finish_timeout)
        if self._dropped:
            raise RuntimeError(
                f"W&B was too slow: {self._dropped} records did not reach it; metrics.jsonl has them all"
            )

    def abort(self, reason: str) -> None:
        self._end("abort", reason, within=min(10.0, self.finish_timeout))

    def _send(self, method: str, *arguments: Any) -> None:
        self._raise()
        if self._thread is None:
            return
        try:
            self._queue.put_nowait((method, arguments))
        except queue.Full:
            self._dropped += 1

    def _end(self, method: str, argument: Any, within: float) -> None:
        self._raise()
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        with suppress(queue.Full):
            self._queue.put((method, (argument,)), timeout=within)
            thread.join(within)
        if thread.is_alive():
            kill_service()
            raise TimeoutError(f"W&B did not take everything in {within:.0f} s; `wandb sync` uploads what is missing")
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error, self._thread = self._error, None, None
            raise error

    def _work(self, run: RunInfo, mode: Mode) -> None:
        try:
            session = Session(self, run, mode)
            method = ""
            while method not in ("finish", "abort"):
                method, arguments = self._queue.get()
                getattr(session, method)(*arguments)
        except Exception as error:  # handed to the next call on the training thread
            self._error = error


class Session:
    """The W&B runs of one process. All its methods are called by one thread."""

    def __init__(self, tracker: WandbTracker, run: RunInfo, mode: Mode) -> None:
        # W&B's reports about itself: nobody asked for them, and without a network they hold up the exit for seconds
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._tracker, self._run = tracker, run
        self._names = short_names(run.space)
        self._alarms: Counter[str] = Counter()
        self._id = stored_id(run.folder)
        self._config = plain(scrub(run.config))
        try:
            self._population, *self._members = self._open_all(mode)
        except Exception as error:
            if mode != "online":
                raise
            cause = (str(error).splitlines() or [type(error).__name__])[0]
            print(f"W&B cannot be reached, so its runs are written offline ({cause})", file=sys.stderr)
            kill_service()  # it still holds the ids of the runs that failed
            self._population, *self._members = self._open_all("offline")
        for member in [self._population, *self._members]:
            for step in ("update", "generation", "policy_tokens"):
                member.define_metric(step)
            for metrics in ("train/*", "turn/*"):
                member.define_metric(metrics, step_metric="update")
            member.define_metric("alarms/*", step_metric="update")
            member.define_metric("hyperparameters/*", step_metric="generation")
            member.define_metric("fitness/*", step_metric="policy_tokens")

    def update(self, record: UpdateRecord) -> None:
        place = self._place(record)
        for part in record.members:
            shown = {
                f"train/{name}": plain(value)
                for name, value in part.metrics.items()
                if name in OF_MEMBERS or name.startswith("reward/")
            }
            self._members[part.member].log(place | shown)
        for_all = {}
        for name in sorted({name for part in record.members for name in part.metrics}):
            values = _finite(part.metrics.get(name) for part in record.members)
            if values:
                chart = name if parsed(name) else f"train/{name}"
                for_all[f"{chart}/mean"] = statistics.fmean(values)
        self._population.log(place | for_all)

    def generation(self, record: GenerationRecord) -> None:
        place = self._place(record)
        for member in record.members:
            worth = {"fitness/rate": member.fitness, "fitness/low": member.low, "fitness/high": member.high}
            trained = {f"hyperparameters/{self._name(key)}": v for key, v in member.hyperparameters.items()}
            told = plain(worth) | plain(trained) | plain(member.metrics)
            self._members[member.member].log(place | told | {"parent": member.parent})
        self._population.log(
            place | _fitness(record) | spread(record, {key: self._name(key) for key in self._run.space})
        )

    def alarm(self, alarm: Alarm) -> None:
        self._alarms[alarm.kind] += 1
        self._population.log({"update": alarm.update, f"alarms/{alarm.kind}": self._alarms[alarm.kind]})

    def finish(self, result: Mapping[str, Any]) -> None:
        self._population.summary.update(plain(scrub(result)))
        try:
            self._log_lineage()  # the only thing here that asks the server a question
        finally:
            for run in [*self._members, self._population]:
                run.finish()

    def abort(self, reason: str) -> None:
        self._population.summary.update({"stopped": reason})
        for run in [*self._members, self._population]:
            run.finish(exit_code=1)

    def _open_all(self, mode: Mode) -> list[Any]:
        """The W&B runs: the population's, then one for each member slot."""
        import wandb  # half a second, and not needed where tracking is off

        wandb.setup(wandb.Settings(silent=True))  # or logging in prints into the live view
        wanted = {
            "init_timeout": self._tracker.init_timeout,
            "finish_timeout": self._tracker.finish_timeout / 2,
            "silent": True,
            "console": "off",
            "disable_git": True,
            "disable_code": True,
            "x_disable_stats": True,
            "x_disable_meta": True,  # this and the next: the command line is recorded, and it may hold a secret
            "x_disable_machine_info": True,
            "x_save_requirements": False,
        }
        settings: dict[str, Any] = {
            name: value for name, value in wanted.items() if name in wandb.Settings.model_fields
        }
        slots = [("member", f"member-{member}") for member in range(self._run.population)]
        return [
            wandb.init(
                mode=mode,
                project=self._tracker.project,
                entity=self._tracker.entity,
                id=f"{self._id}-{name}",
                name=f"{self._run.name} {name}",
                group=f"{self._run.name}-{self._id}",
                job_type=job_type,
                tags=self._tracker.tags,
                config=self._config,
                dir=str(self._run.folder),
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(**settings),
            )
            for job_type, name in [("population", "population"), *slots]
        ]

    def _log_lineage(self) -> None:
        import wandb

        columns: list[str | int] = ["generation", "member", "event", "parent", "fitness", "text", "checksum"]
        lines = read_jsonl(self._run.folder / LINEAGE)
        with _environment("WANDB_DATA_DIR", str(self._run.folder / FOLDER)):  # or tables are staged in the home folder
            table = wandb.Table(columns=columns, data=[[line.get(str(column)) for column in columns] for line in lines])
            self._population.log({"lineage": table})

    def _name(self, key: str) -> str:
        return self._names.get(key, key)

    @staticmethod
    def _place(record: UpdateRecord | GenerationRecord) -> dict[str, Any]:
        """Own steps: W&B's step never goes back, which a resumed run has to."""
        return {
            "update": record.update,
            "generation": record.generation,
            "policy_tokens": record.policy_tokens,
            "environment_turns": record.environment_turns,
            "seconds": record.seconds,
        }


def choose_mode(mode: Mode | Literal["auto"]) -> Mode:
    """The mode that `auto` stands for; `online` without a key becomes `offline`, as W&B would stop and ask for one."""
    if mode == "auto":
        named = os.environ.get("WANDB_MODE")
        if named == "disabled":
            return "disabled"
        return "online" if has_key() and named != "offline" else "offline"
    if mode == "online" and not has_key():
        print(
            "W&B has no API key, so its runs are written offline; set WANDB_API_KEY or run `wandb login`",
            file=sys.stderr,
        )
        return "offline"
    return mode


def kill_service() -> None:
    """End W&B's own process, or it would keep this one from exiting for as long as it hopes for an answer.

    What was logged is in its files by then. There is no public way; where this one is gone, exit takes longer.
    """
    import wandb

    with suppress(Exception):
        wandb.sdk.wandb_setup.singleton()._connection._proc._process.kill()  # type: ignore[union-attr]
    with suppress(Exception, SystemExit):  # it exits the interpreter over a service that was killed
        wandb.teardown()  # or it would be tried at exit, in vain and with a traceback


def has_key() -> bool:
    """True where `WANDB_API_KEY` is set or `wandb login` stored a key for the server."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def stored_id(folder: Path) -> str:
    """The id that the W&B runs of a run folder share; made once and kept in the folder, so that a resume finds them."""
    path = folder / FOLDER / "id"
    if path.exists() and (known := path.read_text(encoding="utf-8").strip()):
        return known
    path.parent.mkdir(parents=True, exist_ok=True)
    made = secrets.token_hex(4)
    path.write_text(made, encoding="utf-8")
    return made


def _fitness(record: GenerationRecord) -> dict[str, float]:
    values = sorted(_finite(member.fitness for member in record.members))
    if not values:
        return {}
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {
        "fitness/best": values[-1],
        "fitness/mean": statistics.fmean(values),
        "fitness/quartile_low": low,
        "fitness/median": middle,
        "fitness/quartile_high": high,
    }


def spread(record: GenerationRecord, names: Mapping[str, str]) -> dict[str, float]:
    """Least, middle and greatest of every hyperparameter, and how many members have each word, such as a species.

    Args:
        names: key -> what it is called.
    """
    found: dict[str, float] = {}
    for key, name in names.items():
        given = [member.hyperparameters.get(key) for member in record.members]
        words = Counter(value for value in given if isinstance(value, str))
        found |= {f"hyperparameters/{name}/{word}": count for word, count in words.items()}
        values = _finite(value for value in given if not isinstance(value, str))
        if values:
            found[f"hyperparameters/{name}/min"], found[f"hyperparameters/{name}/max"] = min(values), max(values)
            found[f"hyperparameters/{name}/median"] = statistics.median(values)
    return found


def _finite(values: Iterator[Any]) -> list[float]:
    numbers = (plain(value) for value in values)
    return [value for value in numbers if isinstance(value, int | float) and not isinstance(value, bool)]


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set an environment variable that was not set, for as long as the block runs."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
