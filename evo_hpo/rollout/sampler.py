"""What a rollout engine is: token ids in, sampled token ids and their log-probabilities out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Request:
    """The next action of one conversation."""

    conversation: int
    ids: list[int]  # to be appended to the conversation first
    key: int  # of the episode's sampling noise


@dataclass(frozen=True)
class Action:
    """A sampled action."""

    ids: list[int]  # exactly what was sampled, the stop token included
    logprobs: list[float]  # in nats, under the distribution that was sampled from
    truncated: bool  # the budget ended before a stop token came


class Sampler(Protocol):
    """An engine that holds conversations between turns; the fused engine and any server are used through this."""

    def open(self, member: int) -> int | None:
        """A new empty conversation of a member, or None while all its slots are taken."""

    def close(self, conversation: int) -> None:
        """Free the slot."""

    def length(self, conversation: int) -> int:
        """Tokens of the conversation that are held or will be fed first with the next request."""

    def act(self, requests: list[Request]) -> list[Action]:
        """Sample one action for each request, in their order."""
