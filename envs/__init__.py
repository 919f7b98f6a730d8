"""Environments: what the agent acts in. One file and one YAML each; the protocol is in `core`."""

from envs.core import Environment, Episode, Feature, Step, StopReason, Turn

__all__ = ["Environment", "Episode", "Feature", "Step", "StopReason", "Turn"]
