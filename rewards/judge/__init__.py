"""Rewards that a language model gives, over any OpenAI-compatible endpoint.

ruler     the episodes of a group against each other, one call a group
rubric    each episode on its own, by named criteria
pairwise  which of two episodes is better, for the pairs of a group
core      what they share: what a judged group is worth, and what becomes of one that could not be judged
client    asking: retries, repair, concurrency, limits
endpoint  one request, and what each error means
cache     answers on disk
ledger    money, calls, and what has been said
quoting   episodes as data that cannot instruct the judge
answers   reading what a judge wrote
"""

from rewards.judge.client import Client
from rewards.judge.pairwise import Pairwise
from rewards.judge.rubric import Rubric
from rewards.judge.ruler import Ruler

__all__ = ["Client", "Pairwise", "Rubric", "Ruler"]
