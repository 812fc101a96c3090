"""The agent: everything that happens between two batches of one learner."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from kytolly.agent.randomness import RandomStream
from kytolly.agent.schedules import ScheduledNumbers
from kytolly.config.run import RunConfig
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import EnvSpec
from kytolly.policy.adam import follows_schedule
from kytolly.policy.base import Policy
from kytolly.policy.batch import Rollout, merge_time
from kytolly.policy.hyper import Hyper

if TYPE_CHECKING:
    from kytolly.agent.exploration import Exploration
    from kytolly.agent.inference import InferencePolicy
    from kytolly.agent.memory import Memory
    from kytolly.agent.memory_state import ActOptions, State

Observations = npt.ArrayLike | Mapping[str, npt.ArrayLike]  # one, or [B, ...] of them


class KytollyAgent(tf.Module):
    """Acts, remembers and learns: owns the policy, the memory, the random stream and the counters.

    A loop compiles what it calls; `act` and `q_values` are for everybody else.

    Args:
        policy: Learns.
        memory: Remembers.
        exploration: Acts while learning.
        cfg: Config.
        env_spec: What the environment is.
        scheduled: Numbers that change with the env steps; None: those of a config without
            `schedules`.
        part_names: The user's own classes, by part: those of the optimizer and of the policy.
    """

    def __init__(
        self,
        policy: Policy,
        memory: Memory,
        exploration: Exploration,
        cfg: RunConfig,
        env_spec: EnvSpec,
        scheduled: ScheduledNumbers | None = None,
        part_names: Mapping[str, str] | None = None,
    ):
        super().__init__(name="kytolly_agent")
        self.policy, self.memory, self.exploration = policy, memory, exploration
        self.cfg, self.env_spec = cfg, env_spec
        self.scheduled = scheduled or ScheduledNumbers.of(cfg)
        self.part_names = tuple((part_names or {}).items())
        # What a resumed run begins with, whatever its checkpoint says; None: a schedule says it.
        is_fixed = "learning_rate" not in self.scheduled.schedules
        is_fixed = is_fixed and not follows_schedule(policy.optimizer)
        self.fixed_rate = float(policy.optimizer.learning_rate) if is_fixed else None
        self.random_stream = RandomStream(cfg.seed)
        self.env_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="env_steps")
        self.episodes = tf.Variable(0, dtype=tf.int64, trainable=False, name="episodes")
        self.latest_names: tuple[str, ...] = (*exploration.metric_names, *memory.metric_names)
        self.latest_names += self.scheduled.metric_names

    def discount(self, terminated: tf.Tensor | np.ndarray) -> Any:
        """Weight of what follows a step: gamma, or 0 where the episode terminated.

        Made here and nowhere else, of tensors and arrays. A time limit is not a termination.
        """
        where = tf.where if tf.is_tensor(terminated) else np.where
        return where(terminated, np.float32(0.0), np.float32(self.policy.hyper.gamma))

    def hyper(self) -> Hyper:
        """The numbers for learning from the next rollout, after so many env steps as there were."""
        return self.scheduled.replace(self.policy.hyper, self.env_steps)

    def observe(self, rollout: Rollout) -> tuple[Any, tf.Tensor]:
        """Count the [T, E] env steps of a rollout and open it in the memory.

        Returns what `memory.batch` takes, and [L] the `latest_names` now.
        """
        hyper = self.hyper()
        if "learning_rate" in self.scheduled.schedules:
            self.policy.optimizer.learning_rate = hyper.learning_rate
        opened, metrics = self.memory.open(rollout, self.policy)
        self.env_steps.assign_add(rollout.reward.shape.num_elements())
        self.exploration.observe(rollout)
        latest = [self.exploration.state(self.env_steps), metrics]
        if names := self.scheduled.metric_names:
            latest.append(tf.stack([getattr(hyper, name) for name in names]))
        return opened, tf.concat(latest, axis=0)

    def updates_due(self) -> int | tf.Tensor:
        """Updates after the rollout that `observe` counted: a number, or [] int32 where it varies.

        After n env steps there were floor(n * ratio): no iteration's fraction is lost.
        """
        steps, ratio = self.cfg.env_steps_per_iteration, self.cfg.updates_per_env_step
        if (ratio * steps).denominator == 1:
            return self.memory.updates
        ends = tf.stack([self.env_steps - steps, self.env_steps])
        before, after = tf.unstack(ends * ratio.numerator // ratio.denominator)
        return tf.cast(after - before, tf.int32)

    def finish_iteration(self, rollout: Rollout) -> None:
        """Count observations into the network's statistics, once nobody needs the old ones."""
        if self.cfg.normalize_observations:
            self.policy.network.update_statistics(merge_time(without_mask(rollout.obs)))

    def act(
        self,
        obs: Observations,
        deterministic: bool = True,
        seed: int | np.random.Generator | None = None,
        **memory: Unpack[ActOptions],
    ) -> Any:
        """The action for one observation (an int or an array [D]), or for a batch (B rows).

        This and the following methods are those of `agent.inference.InferencePolicy`, with the
        weights that the Keras network has now. `memory` is `state`, `first` and `reward`.
        """
        return self._inference.act(obs, deterministic, seed, **memory)

    def initial_state(self, count: int = 1) -> dict[str, np.ndarray]:
        """The state of an agent with a memory in `count` episodes that begin."""
        return self._inference.initial_state(count)

    def values(self, obs: Observations, *, state: State | None = None) -> Any:
        """[B] expected return of the observations; a float for one."""
        return self._inference.values(obs, state=state)

    def q_values(self, obs: Observations, *, state: State | None = None) -> np.ndarray:
        """[B, A] action values; ValueError where none were learned."""
        return self._inference.q_values(obs, state=state)

    def log_prob(
        self, obs: Observations, action: npt.ArrayLike, *, state: State | None = None
    ) -> Any:
        """[B] log-probability of actions; ValueError where action values were learned."""
        return self._inference.log_prob(obs, action, state=state)

    def action_probabilities(self, obs: Observations, *, state: State | None = None) -> np.ndarray:
        """[B, A] probabilities of discrete actions; ValueError where there are none."""
        return self._inference.action_probabilities(obs, state=state)

    @cached_property
    def _inference(self) -> InferencePolicy:
        from kytolly.agent.inference import InferencePolicy
        from kytolly.policy.action_values import reward_scale

        policy, spec = self.policy, self.env_spec
        scale = reward_scale(self.cfg, policy.network)
        return InferencePolicy(
            policy.network, policy.distribution, spec, self.exploration, True, scale
        )
