"""What every test relies on: one thread, no network account, no sign of an enclosing distributed run."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Before torch is imported: the tensors are small, and the tests run in several processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("shared machine", deadline=None)  # what takes long there is no failure
settings.load_profile("shared machine")
OUTSIDE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "WANDB_API_KEY", "HYDRA_FULL_ERROR")


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OUTSIDE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
