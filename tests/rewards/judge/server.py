"""A real OpenAI-compatible server in this process: it reads trajectories, scores them, and misbehaves when told to."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BLOCK = re.compile(r'^<trajectory(?: id="(\w+)")? fence="(\w+)">\n(.*?)\n</trajectory fence="\2">$', re.M | re.S)
CONTEXT = re.compile(r'^<context fence="(\w+)">\n(.*?)\n</context fence="\1">$', re.M | re.S)
WORTH = re.compile(r"worth ([\d.]+)")


@dataclass(frozen=True)
class Request:
    """What arrived."""

    body: dict[str, Any]
    authorization: str
    path: str

    @property
    def text(self) -> str:
        """The first message of the user."""
        return str(self.body["messages"][1]["content"])

    @property
    def system(self) -> str:
        return str(self.body["messages"][0]["content"])

    @property
    def trajectories(self) -> dict[str, list[dict[str, str]]]:
        """Id -> messages, as a reader sees them who trusts fences only."""
        return {name: json.loads(quoted) for name, _, quoted in BLOCK.findall(self.text)}

    @property
    def context(self) -> list[dict[str, str]]:
        [(_, quoted)] = CONTEXT.findall(self.text)
        return list(json.loads(quoted))


@dataclass(frozen=True)
class Response:
    body: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0  # seconds
    drip: float = 0.0  # seconds that a space takes, of which a thousand stand before the body
    short: int = 0  # bytes that are promised and never sent


Behaviour = Callable[[Request], Response]


def said(content: str | None, prompt: int = 1000, completion: int = 100, **more: Any) -> Response:
    """A chat completion with this text."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **more}}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    return Response(json.dumps(reply))


def scored(scores: list[tuple[Any, Any]], label: str = "trajectory_id") -> Response:
    return said(json.dumps({"scores": [{label: name, "explanation": "so", "score": score} for name, score in scores]}))


def worth(messages: list[dict[str, str]]) -> float:
    """What the first action that says `worth x` says."""
    [first, *_] = WORTH.findall(" ".join(m["content"] for m in messages if m["role"] == "assistant"))
    return float(first)


def honest(request: Request) -> Response:
    """Scores every trajectory by what it is worth."""
    return scored([(name, worth(messages)) for name, messages in request.trajectories.items()])


def backwards(request: Request) -> Response:
    return scored([(name, worth(messages)) for name, messages in request.trajectories.items()][::-1])


def failing(status: int, code: str = "", **headers: str) -> Behaviour:
    error = {"error": {"message": "no", "type": "error", "code": code}}
    return lambda request: Response(json.dumps(error), status, {k.replace("_", "-"): v for k, v in headers.items()})


class JudgeServer:
    """Answers each request with the next of `behaviours`, and after the last with `always`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.behaviours: list[Behaviour] = []
        self.always: Behaviour = honest
        self.busiest = 0  # most requests at once
        self._busy = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @contextmanager
    def running(self) -> Iterator[JudgeServer]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self._http.server_close()

    def answer(self, request: Request) -> Response:
        with self._lock:
            self.requests.append(request)
            self._busy += 1
            self.busiest = max(self.busiest, self._busy)
            behaviour = self.behaviours.pop(0) if self.behaviours else self.always
        response = behaviour(request)
        time.sleep(response.after)
        with self._lock:
            self._busy -= 1
        return response

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                response = server.answer(Request(body, self.headers.get("authorization", ""), self.path))
                content = response.body.encode()
                try:
                    self.send_response(response.status)
                    for name, value in {"content-type": "application/json", **response.headers}.items():
                        self.send_header(name, value)
                    spaces = 1_000 if response.drip else 0
                    self.send_header("content-length", str(spaces + len(content) + response.short))
                    self.end_headers()
                    for _ in range(spaces):
                        self.wfile.write(b" ")
                        time.sleep(response.drip)
                    self.wfile.write(content)
                except OSError:
                    pass  # whoever asked has left

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
