"""The agent: everything that happens between two batches of one learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import RandomStream
from kytolly.agent.schedule import linear_schedule
from kytolly.environment.mask import ACTION_MASK, without_mask
from kytolly.environment.spec import EnvSpec
from kytolly.policy.base import Policy
from kytolly.policy.batch import Rollout, merge_time


class KytollyAgent(tf.Module):
    """Acts, remembers and learns: owns the policy, the memory, the random stream and the counters.

    `observe` and `finish_iteration` are plain functions of tensors, compiled by the loop that calls
    them. `act` and `q_values` are for everybody else.

    Args:
        policy: What learns.
        memory: A `ReplayBuffer` or a `RolloutBuffer`: what it learns from.
        exploration: How it acts while it learns.
        cfg: Configuration.
        env_spec: What the environment looks like.
    """

    def __init__(self, policy: Policy, memory: Any, exploration: Any, cfg: Any, env_spec: EnvSpec):
        super().__init__(name="kytolly_agent")
        self.policy, self.memory, self.exploration = policy, memory, exploration
        self.cfg, self.env_spec = cfg, env_spec
        self.random_stream = RandomStream(cfg.seed)
        self.env_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="env_steps")
        self.episodes = tf.Variable(0, dtype=tf.int64, trainable=False, name="episodes")
        self.latest_names: tuple[str, ...] = (*exploration.metric_names, *memory.metric_names)
        self._host_actor: Any = None
        # A schedule over updates is the optimizer's own.
        self._sets_learning_rate = (
            cfg.learning_rate_final is not None and cfg.learning_rate_decay_updates is None
        )

    def discount(self, terminated: Any) -> Any:
        """Weight of what follows a step: gamma, or 0 where the episode terminated.

        Made here and nowhere else, of tensors and arrays. A time limit is not a termination.
        """
        where = tf.where if tf.is_tensor(terminated) else np.where
        return where(terminated, np.float32(0.0), np.float32(self.cfg.gamma))

    def observe(self, rollout: Rollout) -> tuple[Any, tf.Tensor]:
        """Count the env steps of a rollout and open it in the memory.

        Args:
            rollout: [T, E] env steps, collected with the present weights or a little older ones.

        Returns:
            What `memory.batch` takes, and [L] the `latest_names` now.
        """
        if self._sets_learning_rate:
            self.policy.optimizer.learning_rate.assign(self._learning_rate())
        opened = self.memory.open(rollout, self.policy)
        self.env_steps.assign_add(rollout.reward.shape.num_elements())
        explored = self.exploration.state(self.env_steps)
        return opened, tf.concat([explored, self.memory.latest(opened)], axis=0)

    def finish_iteration(self, rollout: Rollout) -> None:
        """Count observations into the network's statistics, once nobody needs the old ones."""
        if getattr(self.cfg, "normalize_observations", False):
            self.policy.network.update_statistics(merge_time(without_mask(rollout.obs)))

    def act(self, observation: Any) -> Any:
        """Greedy action for one observation, or for a batch of them.

        Args:
            observation: [*obs] or [B, *obs]; for Dict observations a dict of such arrays.

        Returns:
            For one observation what an environment's `step` takes: an int, or an array [D]. For a
            batch an array with `B` rows.
        """
        obs = self._as_arrays(observation)
        parts, specs = tf.nest.flatten(obs), tf.nest.flatten(self.env_spec.obs)
        shapes = list(zip([p.shape for p in parts], [tuple(s.shape) for s in specs], strict=True))
        if all(found == expected for found, expected in shapes):
            batch = tf.nest.map_structure(lambda part: part[np.newaxis], obs)
            one = self._actor.greedy_now(batch)[0]
            return int(one) if one.ndim == 0 else one
        if all(found[1:] == expected for found, expected in shapes):
            return self._actor.greedy_now(obs)
        raise ValueError(
            f"act() got an observation of shape {', '.join(str(found) for found, _ in shapes)}, "
            f"expected {', '.join(str(expected) for _, expected in shapes)} or a batch of them, "
            "with the batch axis first."
        )

    def q_values(self, observation: Any) -> np.ndarray:
        """[B, A] action values of a batch of observations, where the policy learns action values.

        Of other policies these are the params of the action distribution.
        """
        return self._actor.network_outputs(self._as_arrays(observation))

    @property
    def _actor(self) -> Any:
        if self._host_actor is None:
            from kytolly.agent.acting import HostActor

            policy = self.policy
            self._host_actor = HostActor(policy.network, policy.distribution, self.env_spec.obs)
        return self._host_actor

    def _learning_rate(self) -> tf.Tensor:
        cfg = self.cfg
        return linear_schedule(
            cfg.learning_rate, cfg.learning_rate_final, cfg.total_env_steps, self.env_steps
        )

    def _as_arrays(self, observation: Any) -> Any:
        """The observation as arrays of the spec's dtypes, in the order of its names."""
        spec = self.env_spec.obs
        if not isinstance(spec, dict):
            return np.asarray(observation, spec.dtype.as_numpy_dtype)
        missing = set(spec) - set(observation) if isinstance(observation, Mapping) else set(spec)
        if missing:
            raise ValueError(
                f"act() got an observation without {', '.join(sorted(missing))}, expected a dict "
                f"with {', '.join(spec)}."
            )
        obs = {n: np.asarray(observation[n], s.dtype.as_numpy_dtype) for n, s in spec.items()}
        if ACTION_MASK in obs and not obs[ACTION_MASK].any(axis=-1).all():
            raise ValueError(
                "act() got an action_mask that forbids everything, expected one that allows an "
                "action at least."
            )
        return obs
