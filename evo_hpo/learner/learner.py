"""One update of the whole population: rows in, one optimiser step per minibatch out.

A member's loss is a weighted sum over its own rows, with weights from its own whole minibatch; gradients of members
never meet. So the result does not depend on micro-batches, row order, padding, processes, or who else is in the
population.
"""

from __future__ import annotations

from torch import Tensor

from algorithms.core import Algorithm
from algorithms.memory import Memory, beginning
from algorithms.policy_gradient import PolicyGradient
from algorithms.preference import Preference
from algorithms.scorers import ScorerAlgorithm
from algorithms.supervised import Supervised
from evo_hpo.learner import from_examples, from_preferences, from_rewards, from_scores
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.learner.passes import Passes
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.processes import Processes


class Learner:
    """Trains a policy with one algorithm.

    Attributes:
        watch_kl: measure the divergence from the reference also where it has no weight in the loss.
        optimizer, critic_optimizer: population optimisers; their state is part of a checkpoint and of a clone.
        memory: name -> [N], what the algorithm carries from update to update; likewise.
    """

    def __init__(
        self, policy: Policy, algorithm: Algorithm, processes: Processes, micro_tokens: int, watch_kl: bool = False
    ) -> None:
        self.policy, self.algorithm, self.watch_kl = policy, algorithm, watch_kl
        self.passes = Passes(policy, processes, micro_tokens)
        self.optimizer = PopulationAdamW(policy.block)
        self.critic_optimizer: PopulationAdamW | None = None
        self.memory: Memory = {}
        if isinstance(algorithm, PolicyGradient):
            self.memory = beginning(algorithm, policy.members, policy.base.device)
        if algorithm.trains_scorer or getattr(algorithm, "critic", None) is not None:
            if policy.critic is None:
                policy.add_critic()
            assert policy.critic is not None
            self.critic_optimizer = PopulationAdamW(policy.critic)

    def gather(self, parent_M: Tensor) -> None:
        """Row i of all that is carried becomes what row parent_M[i] was; there may be fewer rows than before."""
        self.optimizer.gather(parent_M)
        if self.critic_optimizer is not None:
            self.critic_optimizer.gather(parent_M)
        self.memory = {name: column[parent_M] for name, column in self.memory.items()}

    def restart(self, member: int) -> None:
        """Forget what is carried of a member."""
        for optimizer in (self.optimizer, self.critic_optimizer):
            if optimizer is not None:
                optimizer.restart(member)
        if isinstance(self.algorithm, PolicyGradient):
            fresh = beginning(self.algorithm, self.policy.members, self.policy.base.device)
            for name, column in self.memory.items():
                column[member] = fresh[name][member]

    def tensors(self) -> dict[str, Tensor]:
        """State of the optimisers and the memory, by dotted name."""
        found = {f"optimizer.{part}": tensor for part, tensor in self.optimizer.state().items()}
        if self.critic_optimizer is not None:
            found |= {f"critic_optimizer.{part}": tensor for part, tensor in self.critic_optimizer.state().items()}
        return found | {f"memory.{name}": column for name, column in self.memory.items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go back to what `tensors` returned; further names are passed over."""

        def under(name: str) -> dict[str, Tensor]:
            return {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.startswith(f"{name}.")}

        self.optimizer.load(under("optimizer"))
        if self.critic_optimizer is not None:
            self.critic_optimizer.load(under("critic_optimizer"))
        self.memory = {name: column.to(self.policy.base.device) for name, column in under("memory").items()}

    def update(self, batch: Batch, algorithm: Algorithm, sampling: Sampling, update: int) -> dict[str, Tensor]:
        """Learn from `batch` with the members' present hyperparameters.

        Args:
            algorithm: evolvable fields as floats or [N].
            sampling: per member [N]; log-probabilities are of the distribution that was sampled from.
            update: number of the update, for the order of rows and the warm-up.
        Returns:
            name -> [N] metrics.
        """
        if isinstance(algorithm, Supervised):
            return from_examples.learn(self.passes, self.optimizer, batch, algorithm, sampling, update)
        if isinstance(algorithm, Preference):
            return from_preferences.learn(self.passes, self.optimizer, batch, algorithm, sampling, update)
        if isinstance(algorithm, ScorerAlgorithm):
            assert self.critic_optimizer is not None
            return from_scores.learn(self.passes, self.critic_optimizer, batch, algorithm, update)
        assert isinstance(algorithm, PolicyGradient)
        optimizers = (self.optimizer, self.critic_optimizer)
        metrics, self.memory = from_rewards.learn(
            self.passes, optimizers, batch, algorithm, sampling, update, self.memory, self.watch_kl
        )
        return metrics
