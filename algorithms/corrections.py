"""What if the trainer does not agree with the sampler about the probability of a token?

The behaviour policy sampled; the old policy is the trainer's at the start of the update. A correction gives each token
a weight on its surrogate loss, made of old / behaviour.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class Correction(ABC):
    """Base of every correction. Subclasses are frozen dataclasses; evolvable fields are scalars or [R, 1]."""

    @abstractmethod
    def __call__(self, log_weight_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
        """[R, T] weight of each trained token's surrogate loss, at least 0; 0 where not trained.

        Args:
            log_weight_RT: [R, T] log pi_old - log pi_behaviour of the sampled tokens, in nats, detached.
            mask_RT: [R, T] bool, trained tokens.
            turn_RT: [R, T] int64, equal for the tokens of one turn, -1 where not trained.
        """
