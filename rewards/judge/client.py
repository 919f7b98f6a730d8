"""Asks a language model for JSON, and never takes the run down with it."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt

from rewards.judge.answers import parsed
from rewards.judge.cache import Cache, content_key
from rewards.judge.endpoint import NO_LIBRARY, Endpoint, Failed, NoSchema, Passing, is_address, is_local
from rewards.judge.ledger import Ledger, OverBudget

MILLION = 1_000_000
REPEATED = 4_000  # characters of an unusable answer that the judge gets to see again
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
OURS = frozenset({"model", "messages", "response_format", "stream"})  # keys of a request that the client fills

Counts = defaultdict[str, float]


@dataclass(frozen=True)
class Question:
    system: str
    user: str
    schema: dict[str, Any]  # JSON schema of the answer
    read: Callable[[Any], Any]  # what the parsed JSON says; raises ValueError where it is not usable


@dataclass(frozen=True)
class Answer:
    """What came of a question: a value, or why there is none."""

    value: Any = None  # what `read` returned
    kind: str | None = None  # of the failure; None: there is a value
    failure: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)  # calls, tokens … that it took

    @property
    def over_budget(self) -> bool:
        return self.kind == "budget"


@dataclass
class _Asking:
    """What the questions that are asked together share."""

    until: float  # on the monotonic clock, in seconds
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Client:
    """One model behind one endpoint. All limits are those of one run, however many rewards are asked together."""

    base_url: str | None  # None: OPENAI_BASE_URL, or OpenAI's own service
    model: str | None
    api_key_env: str | None  # name of the environment variable that holds the key; None: the server wants none
    parameters: dict[str, Any]  # further keys of every request
    timeout: Annotated[float, Gt(0)]  # seconds, of one request
    deadline: Annotated[float, Gt(0)]  # seconds, of all questions that are asked together
    retries: Annotated[int, Ge(0)]
    backoff: Annotated[float, Ge(0)]  # seconds before the first retry; doubles
    concurrency: Annotated[int, Gt(0)]  # requests at once
    cache: str | None  # folder
    prompt_price: Annotated[float, Ge(0)]  # money for a million tokens
    completion_price: Annotated[float, Ge(0)]
    budget: Annotated[float, Gt(0)] | None  # money
    max_calls: Annotated[int, Gt(0)] | None
    ledger: Ledger = field(init=False, repr=False, compare=False, default_factory=Ledger)

    def __post_init__(self) -> None:
        if self.budget is not None and not self.prompt_price + self.completion_price:
            raise ValueError(
                f"budget is {self.budget:g}, and without a price nothing counts against it; "
                "write prompt_price and completion_price, or limit max_calls instead"
            )
        if self.api_key_env is not None and not VARIABLE.fullmatch(self.api_key_env):
            raise ValueError(  # it may be the key, so it is not repeated
                "api_key_env is no name of an environment variable (capitals, digits and _); put the key into a "
                "variable and write its name here, say OPENAI_API_KEY"
            )
        if taken := sorted(OURS & set(self.parameters)):
            raise ValueError(f"parameters sets {', '.join(taken)}, which the client fills itself; leave it out there")

    def check(self) -> None:
        """Refuse what could not ask anything, before a run is paid for.

        Raises:
            ValueError: no model, an endpoint that is no URL, no key, or the package `openai` is missing.
        """
        url = self._url
        if not self.model:
            raise ValueError(
                "the judge has no model; write reward.client.model=<name>, and reward.client.base_url=<http://…/v1> "
                "where another server than OpenAI's has it (a part of a composite: reward.parts.<part>.client.model)"
            )
        if url is not None and not is_address(url):
            raise ValueError(f"the judge's base_url {url!r} is no address; write one like http://localhost:8000/v1")
        if self.api_key_env is not None and not self._key and not is_local(url):
            raise ValueError(
                f"the judge needs a key, and the environment variable {self.api_key_env} is not set; set it, name "
                "another one in reward.client.api_key_env, or write null there for a server that wants none"
            )
        if importlib.util.find_spec("openai") is None:
            raise ValueError(NO_LIBRARY)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask all `questions`, a few at a time, and equal ones once. A failure of the judge is an answer too."""
        if not questions:
            return []
        asking = _Asking(time.monotonic() + self.deadline)
        keys = [self._content_key(question) for question in questions]
        first: dict[str, int] = {}
        for place, key in enumerate(keys):
            first.setdefault(key, place)
        with ThreadPoolExecutor(min(self.concurrency, len(first))) as pool:
            futures: dict[str, Future[Answer]] = {
                key: pool.submit(self._answer, questions[place], key, asking) for key, place in first.items()
            }
            try:
                answers = {key: future.result() for key, future in futures.items()}
            except BaseException:  # Ctrl-C: begin nothing more, and wait for nothing but what is on its way
                asking.stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [answers[key] if place == first[key] else _again(answers[key]) for place, key in enumerate(keys)]

    def _answer(self, question: Question, key: str, asking: _Asking) -> Answer:
        """The stored answer, or the judge's first, or its second after it was told what is wrong with the first."""
        store = None if self.cache is None else Cache(Path(self.cache))
        if store is not None and (stored := store.read(key)) is not None:
            try:
                return Answer(question.read(parsed(stored)), counts={"cached": 1.0})
            except ValueError:
                pass  # written by something else, or damaged: ask again and write it anew
        counts: Counts = defaultdict(float)
        dialogue = [{"role": "user", "content": question.user}]
        why = ""
        for repairs in range(2):
            try:
                text = self._patient(question, dialogue, counts, asking)
            except Failed as failure:
                return Answer(None, failure.kind, str(failure), counts)
            try:
                value = question.read(parsed(text))
            except ValueError as complaint:
                why = str(complaint)
                dialogue += [
                    {"role": "assistant", "content": text[:REPEATED] or "(no answer)"},
                    {
                        "role": "user",
                        "content": f"This answer cannot be used: {why}. Answer again, with the JSON only.",
                    },
                ]
                continue
            counts["repaired"] += repairs
            if store is not None:
                self._keep(store, key, text)
            return Answer(value, counts=counts)
        why = self._endpoint.hidden(why)
        return Answer(None, "unusable", f"its answer cannot be used, even when asked again: {why}", counts)

    def _patient(self, question: Question, dialogue: list[dict[str, str]], counts: Counts, asking: _Asking) -> str:
        """The text of one answer; what may pass is tried again, later and later.

        Raises:
            Failed: it does not pass, or there is no time or money left.
        """
        retries, schema = 0, not self.ledger.plain
        while True:
            left = asking.until - time.monotonic()
            if asking.stop.is_set() or left <= 0:
                raise Failed("deadline", f"the {self.deadline:g} s for all questions together (deadline) are over")
            try:
                text = self._request(question, dialogue, schema, min(self.timeout, left), counts)
            except NoSchema:
                schema = False
                continue
            except Passing as trouble:
                pause = max(trouble.after, self.backoff * 2**retries * random.Random().uniform(0.5, 1.0))
                if retries == self.retries:
                    raise Failed(trouble.kind, f"{trouble}, {retries + 1} times in a row") from None
                if time.monotonic() + pause >= asking.until:
                    raise Failed(trouble.kind, f"{trouble}, and the deadline is nearer than the next try") from None
                retries += 1
                counts["retries"] += 1
                asking.stop.wait(pause)
                continue
            if not schema:
                self.ledger.plain = True  # only now is it known that the schema was to blame
            return text

    def _request(
        self, question: Question, dialogue: list[dict[str, str]], schema: bool, limit: float, counts: Counts
    ) -> str:
        """One request, paid for; the schema goes with it, or into the prompt where the server does not know any."""
        system, more = question.system, dict(self.parameters)
        if schema:
            described = {"name": "verdict", "strict": True, "schema": question.schema}
            more["response_format"] = {"type": "json_schema", "json_schema": described}
        else:
            system += f"\n\nAnswer with JSON of this schema and nothing else:\n{json.dumps(question.schema)}"
        try:
            self.ledger.start_call(self.max_calls, self.budget)
        except OverBudget as limit_reached:
            raise Failed("budget", str(limit_reached)) from None
        counts["calls"] += 1
        messages = [{"role": "system", "content": system}, *dialogue]
        text, tokens = self._endpoint.complete(self.model or "", messages, more, limit)
        cost = (tokens["prompt"] * self.prompt_price + tokens["completion"] * self.completion_price) / MILLION
        self.ledger.pay(cost)
        for name, number in {"prompt_tokens": tokens["prompt"], "completion_tokens": tokens["completion"]}.items():
            counts[name] += number
        counts["cost"] += cost
        return text

    def _keep(self, store: Cache, key: str, text: str) -> None:
        try:
            store.write(key, self._endpoint.hidden(text))
        except OSError as error:
            self.ledger.say(
                "cache", f"the judge's cache {self.cache} cannot be written ({error}); answers are not kept"
            )

    def _content_key(self, question: Question) -> str:
        content = {"system": question.system, "user": question.user, "schema": question.schema}
        return content_key({"model": self.model, "parameters": self.parameters, **content})

    @cached_property
    def _endpoint(self) -> Endpoint:
        return Endpoint(self._url, self._key)

    @property
    def _key(self) -> str:
        return os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""

    @property
    def _url(self) -> str | None:
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or None


def _again(answer: Answer) -> Answer:
    """The same answer for an equal question, which cost nothing."""
    return Answer(answer.value, answer.kind, answer.failure, {} if answer.kind else {"cached": 1.0})
