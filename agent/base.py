"""What all agents have: a policy, counters, one source of random bits, and `act`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from agent.acting import HostActor
from agent.random_stream import RandomStream
from config import RunConfig
from environment.spec import EnvSpec


class Agent(tf.Module):
    """A learner: subclasses add what happens between two batches.

    Args:
        policy: Learning rule with its network (`network`).
        cfg: Settings.
        env_spec: What the environment looks like.
        actor: Greedy actions on the host.
    """

    latest_names: tuple[str, ...] = ()  # figures that `latest()` gives, of which no mean is taken

    def __init__(self, policy: Any, cfg: RunConfig, env_spec: EnvSpec, actor: HostActor):
        super().__init__(name="kytolly_agent")
        self.policy, self.cfg, self.env_spec = policy, cfg, env_spec
        self.random_stream = RandomStream(cfg.seed)
        self.env_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="env_steps")
        self.episodes = tf.Variable(0, dtype=tf.int64, trainable=False, name="episodes")
        self._actor = actor

    def act(self, observation: Any) -> Any:
        """Greedy action for one observation, or for a batch of them.

        Args:
            observation: [*obs] or [B, *obs]; for Dict observations a dict of such arrays.

        Returns:
            For one observation what an environment's `step` takes: an int, or an array [D]. For a
            batch an array with `B` rows.
        """
        obs = tf.nest.map_structure(
            lambda spec, part: np.asarray(part, spec.dtype.as_numpy_dtype),
            self.env_spec.obs,
            {name: observation[name] for name in self.env_spec.obs}
            if isinstance(self.env_spec.obs, dict)
            else observation,
        )
        parts, specs = tf.nest.flatten(obs), tf.nest.flatten(self.env_spec.obs)
        if all(part.shape == tuple(spec.shape) for part, spec in zip(parts, specs, strict=True)):
            one = self._actor.fresh(tf.nest.map_structure(lambda part: part[np.newaxis], obs))[0]
            return int(one) if one.ndim == 0 else one
        if all(
            part.shape[1:] == tuple(spec.shape) for part, spec in zip(parts, specs, strict=True)
        ):
            return self._actor.fresh(obs)
        found = ", ".join(str(part.shape) for part in parts)
        expected = ", ".join(str(tuple(spec.shape)) for spec in specs)
        raise ValueError(
            f"act() got an observation of shape {found}, expected {expected} or a batch of them, "
            "with the batch axis first."
        )
