"""What asking costs, what is remembered, and what is never written down."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.core import Episode
from rewards.environment import EnvironmentReward
from rewards.judge.rubric import Criterion
from tests.rewards.judge.server import JudgeServer, Request, Response, failing, honest, said
from tests.rewards.judge.support import client, rubric, ruler, worths

KEY = "sk-this-is-the-key-of-someone"


def groups(count: int) -> list[list[Episode]]:
    return [worths(0.2, round(0.3 + 0.01 * k, 2)) for k in range(count)]


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also where the tests were started in the background, which makes Python ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_tokens_and_money_are_counted(server: JudgeServer) -> None:
    judge = ruler(client(server.url))
    verdicts = judge.judge(groups(2))
    assert [verdict.metrics["judge/prompt_tokens"] for verdict in verdicts] == [1000, 1000]
    assert [verdict.metrics["judge/completion_tokens"] for verdict in verdicts] == [100, 100]
    assert [verdict.metrics["judge/cost"] for verdict in verdicts] == pytest.approx([0.0028, 0.0028])
    assert judge.state()["client"] == {"calls": 2, "spent": pytest.approx(0.0056), "plain": False}


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "many"}, {"prompt_tokens": -5}])
def test_a_server_that_counts_no_tokens_costs_nothing(server: JudgeServer, usage: Any) -> None:
    def uncounted(request: Request) -> Response:
        return Response(json.dumps({**json.loads(honest(request).body), "usage": usage}))

    server.always = uncounted
    [verdict] = ruler(client(server.url)).judge(groups(1))
    assert (verdict.metrics["judge/cost"], verdict.metrics["judge/failed"]) == (0, 0)


def test_no_more_requests_are_under_way_than_concurrency_allows(server: JudgeServer) -> None:
    server.always = lambda request: Response(honest(request).body, after=0.05)
    verdicts = ruler(client(server.url, concurrency=3)).judge(groups(9))
    assert server.busiest == 3 and len(server.requests) == 9
    assert [v.scores[1].outcome for v in verdicts if v.scores] == [round(0.3 + 0.01 * k, 2) for k in range(9)]


def test_equal_questions_are_asked_once(server: JudgeServer) -> None:
    verdicts = ruler(client(server.url)).judge([*groups(1), *groups(1)])
    assert len(server.requests) == 1
    assert [v.scores[1].outcome for v in verdicts if v.scores] == [0.3, 0.3]
    assert [v.metrics["judge/cached"] for v in verdicts] == [0, 1]


def test_what_was_asked_before_costs_nothing_after_a_restart(server: JudgeServer, tmp_path: Path) -> None:
    cache = str(tmp_path / "answers")
    first = ruler(client(server.url, cache=cache)).judge(groups(2))
    again = ruler(client(server.url, cache=cache)).judge(groups(2))
    assert len(server.requests) == 2 and len(list((tmp_path / "answers").iterdir())) == 2
    assert [v.scores for v in first] == [v.scores for v in again]
    assert [(v.metrics["judge/cached"], v.metrics["judge/cost"]) for v in again] == [(1, 0), (1, 0)]


@pytest.mark.parametrize("changes", [{"model": "judge-2"}, {"parameters": {"temperature": 0}}])
def test_another_model_or_parameter_is_another_question(
    server: JudgeServer, tmp_path: Path, changes: dict[str, Any]
) -> None:
    ruler(client(server.url, cache=str(tmp_path))).judge(groups(1))
    ruler(client(server.url, cache=str(tmp_path), **changes)).judge(groups(1))
    assert len(server.requests) == 2
    assert ("temperature" in server.requests[1].body) == ("parameters" in changes)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"answer": 1}', '{"answer": "{}"}', "\udcff"])
def test_a_damaged_entry_of_the_cache_is_asked_for_and_written_again(
    server: JudgeServer, tmp_path: Path, damage: str
) -> None:
    judge = ruler(client(server.url, cache=str(tmp_path)))
    judge.judge(groups(1))
    [entry] = tmp_path.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage.encode(errors="surrogateescape"))
    [verdict] = judge.judge(groups(1))
    assert verdict.scores is not None and verdict.scores[1].outcome == 0.3
    assert len(server.requests) == 2 and [file.read_bytes() for file in tmp_path.iterdir()] == [whole]


def test_only_answers_that_could_be_used_are_kept(server: JudgeServer, tmp_path: Path) -> None:
    server.behaviours = [lambda request: said("{}")]
    judge = ruler(client(server.url, cache=str(tmp_path)))
    judge.judge(groups(1))
    judge.judge(groups(1))
    assert len(server.requests) == 2  # a repair, and then nothing more


def test_a_cache_that_cannot_be_written_is_said_once_and_costs_no_verdict(
    server: JudgeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    verdicts = ruler(client(server.url, cache=str(tmp_path / "file"))).judge(groups(2))
    assert all(v.scores is not None and v.metrics["judge/failed"] == 0 for v in verdicts)
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_a_budget_stops_calling_and_says_so_once(server: JudgeServer, capsys: pytest.CaptureFixture[str]) -> None:
    judge = ruler(client(server.url, budget=0.005, concurrency=1))  # 0.0028 a call
    verdicts = judge.judge(groups(5))
    assert len(server.requests) == 2
    assert [v.metrics["judge/over_budget"] for v in verdicts] == [0, 0, 1, 1, 1]
    assert [v.metrics["judge/fallback"] for v in verdicts] == [0, 0, 1, 1, 1]
    assert sum(v.metrics["judge/failed"] for v in verdicts) == 0  # a limit that was asked for is no failure
    judge.judge(groups(5))
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "has spent 0.0056 of its budget of 0.005" in told
    assert "from here on EnvironmentReward scores groups that are not" in told


def test_max_calls_holds_with_many_threads_and_counts_retries(server: JudgeServer) -> None:
    server.behaviours = [failing(500)]
    verdicts = ruler(client(server.url, max_calls=5, concurrency=8)).judge(groups(12))
    assert len(server.requests) == 5
    assert sum(v.metrics["judge/calls"] for v in verdicts) == 5
    assert sum(v.metrics["judge/over_budget"] for v in verdicts) == 8


def test_what_was_spent_survives_a_resume(server: JudgeServer) -> None:
    judge = ruler(client(server.url, max_calls=3))
    judge.judge(groups(2))
    resumed = ruler(client(server.url, max_calls=3))
    resumed.load_state(json.loads(json.dumps(judge.state())))
    verdicts = resumed.judge(groups(4)[2:])
    assert sum(v.metrics["judge/over_budget"] for v in verdicts) == 1 and len(server.requests) == 3


def test_the_key_goes_to_the_server_and_nowhere_else(
    server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGE_ACCOUNT", f" {KEY}\n")

    def indiscreet(request: Request) -> Response:
        if "0.31" in request.text:
            return failing(401, code=request.authorization)(request)
        if "0.32" in request.text:
            return Response(json.dumps({"error": {"message": f"no account {request.authorization}"}}), 403)
        if "0.33" in request.text:
            return said(request.authorization)
        scores = json.loads(json.loads(honest(request).body)["choices"][0]["message"]["content"])
        scores["scores"][0]["explanation"] = request.authorization
        return said(json.dumps(scores))

    server.always = indiscreet
    judge = ruler(client(server.url, api_key_env="JUDGE_ACCOUNT", cache=str(tmp_path)))
    verdicts = judge.judge(groups(4))
    assert server.requests[0].authorization == f"Bearer {KEY}"
    assert [v.metrics["judge/failed"] for v in verdicts] == [0, 1, 1, 1]
    [entry] = tmp_path.iterdir()
    written = [entry.read_text(), capsys.readouterr().err, repr(judge), json.dumps(judge.state()), repr(verdicts)]
    assert "Bearer" in written[0] and "<removed>" in written[1]
    assert not any(KEY in text for text in written)


def test_without_a_key_none_is_sent_although_another_variable_has_one(
    server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ruler(client(server.url, api_key_env=None)).judge(groups(1))
    assert KEY not in server.requests[0].authorization


def test_a_proxy_for_the_world_is_not_asked_for_the_own_machine(
    server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    [verdict] = ruler(client(server.url)).judge(groups(1))
    assert verdict.metrics["judge/failed"] == 0


def test_the_address_can_come_from_the_environment(server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert ruler(client(None))(groups(1)[0])[1].outcome == 0.3
    assert server.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "changes", "sentence"),
    [
        (None, {"model": None}, "has no model; write reward.client.model=<name>, and reward.client.base_url="),
        (None, {"api_key_env": "NO_SUCH_ACCOUNT"}, "environment variable NO_SUCH_ACCOUNT is not set"),
        ("https://judge.example.org/v1", {"api_key_env": "NO_SUCH_ACCOUNT"}, "NO_SUCH_ACCOUNT is not set"),
        ("localhost:8000/v1", {}, "'localhost:8000/v1' is no address"),
        ("http:///v1", {}, "is no address"),
        ("http://[::1/v1", {}, "is no address"),
    ],
)
def test_what_could_not_ask_is_refused_before_anything_runs(
    url: str | None, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ruler(client(url, **changes)).check()


@pytest.mark.parametrize("key", [KEY, "f00dfeedf00dfeed", ""])
def test_a_key_where_its_variable_should_be_named_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="api_key_env is no name of an environment variable") as refused:
        client("https://judge.example.org/v1", api_key_env=key)
    assert not key or key not in str(refused.value)


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "http://127.0.0.1/v1", "http://192.168.1.5/v1"])
def test_a_server_of_your_own_needs_no_key(url: str) -> None:
    ruler(client(url, api_key_env="NO_SUCH_ACCOUNT")).check()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"budget": 1.0, "prompt_price": 0.0, "completion_price": 0.0}, "without a price nothing counts against it"),
        ({"parameters": {"stream": True}}, "parameters sets stream, which the client fills itself"),
    ],
)
def test_settings_that_contradict_the_client_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        client(None, **changes)


def test_a_fallback_that_may_fail_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="fallback is Ruler, which may fail or cost money itself"):
        ruler(client(None), fallback=ruler(client(None)))


def test_a_criterion_named_like_a_component_of_the_fallback_is_refused() -> None:
    with pytest.raises(ValueError, match="criteria has success, which is a component of the fallback too"):
        rubric(client(None), fallback=EnvironmentReward(), criteria={"success": Criterion("Did it?", 1.0)})


def test_a_judge_is_built_and_checked_without_loading_the_library() -> None:
    lines = (
        "import sys, importlib.util",
        "from tests.rewards.judge.support import client, ruler",
        "ruler(client('http://localhost/v1')).check()",
        "assert 'openai' not in sys.modules",
        "importlib.util.find_spec = lambda name: None",
        "ruler(client('http://localhost/v1')).check()",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert "ValueError: a judge needs the package openai; write pip install openai" in done.stderr


def test_an_interrupted_run_begins_no_further_request(server: JudgeServer) -> None:
    def interrupting(request: Request) -> Response:
        if len(server.requests) == 2:
            ctrl_c()
        return Response(honest(request).body, after=0.05)

    server.always = interrupting
    with pytest.raises(KeyboardInterrupt):
        ruler(client(server.url, concurrency=1)).judge(groups(20))
    assert len(server.requests) < 6


def test_an_interrupted_run_does_not_wait_for_its_next_try(server: JudgeServer) -> None:
    def interrupting(request: Request) -> Response:
        ctrl_c()
        return failing(503)(request)

    server.always = interrupting
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ruler(client(server.url, backoff=5.0)).judge(groups(1))
    assert time.monotonic() - begun < 2
