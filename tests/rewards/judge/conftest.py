from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rewards.judge.server import JudgeServer


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer().running() as running:
        yield running
