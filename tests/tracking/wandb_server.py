"""As much of a W&B server as a client needs to be content, on this machine; it can fall silent at any time."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.talking = threading.Event()  # cleared: requests are read and never answered
        self.talking.set()
        self.runs: dict[str, dict[str, Any]] = {}  # id: what the client said of the run
        self.lines: list[str] = []  # history lines that arrived

    def handle_error(self, *_: object) -> None:
        """Clients may hang up."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self._body()
        self.server.talking.wait()
        if self.path == "/graphql":
            request = json.loads(body)
            refused = {"errors": [{"message": "this server keeps no artifacts"}]}
            self._answer(refused if "mutation CreateArtifact" in request["query"] else {"data": self._graphql(request)})
            return
        files = json.loads(body or "{}").get("files") or {}
        self.server.lines += files.get("wandb-history.jsonl", {}).get("content", [])
        self._answer({"exitcode": None, "limits": {}})

    def do_PUT(self) -> None:
        self._body()
        self._answer({})

    def do_GET(self) -> None:
        self._answer({})

    def log_message(self, *_: object) -> None:
        """Requests are nobody's business here."""

    def _graphql(self, request: dict[str, Any]) -> dict[str, Any]:
        found = re.search(r"(?:query|mutation)\s+(\w+)", request["query"])
        operation, given = (found[1] if found else ""), request.get("variables") or {}
        if operation == "UpsertBucket":
            name = given.get("name") or "run"
            self.server.runs.setdefault(name, {}).update({k: v for k, v in given.items() if v is not None})
            project = {"id": "p", "name": "evo-hpo", "entity": {"id": "e", "name": "me"}}
            bucket = {"id": name, "name": name, "displayName": name, "config": given.get("config") or "{}",
                      "createdAt": "2026-01-01T00:00:00Z", "historyLineCount": 0, "project": project}  # fmt: skip
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if operation == "Viewer":
            return {"viewer": {"id": "u", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
        if operation == "ArtifactType":
            return {"project": None}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.server.url}/{name}"} for name in given.get("files", [])]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        if "erver" in operation:
            return {"serverInfo": {"cliVersionInfo": {"max_cli_version": "99.0.0"}, "features": []}}
        return {"model": None}

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _answer(self, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.talking.set()  # let go of the threads that keep silent
        server.shutdown()
        server.server_close()
