"""What all agents have: a policy, counters, one source of random bits, and `act`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor
from kytolly.agent.randomness import RandomStream
from kytolly.config.run import RunConfig
from kytolly.environment.spec import ACTION_MASK, EnvSpec


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
        obs = self._typed(observation)
        parts, specs = tf.nest.flatten(obs), tf.nest.flatten(self.env_spec.obs)
        shapes = list(zip([p.shape for p in parts], [tuple(s.shape) for s in specs], strict=True))
        if all(found == expected for found, expected in shapes):
            one = self._actor.fresh(tf.nest.map_structure(lambda part: part[np.newaxis], obs))[0]
            return int(one) if one.ndim == 0 else one
        if all(found[1:] == expected for found, expected in shapes):
            return self._actor.fresh(obs)
        raise ValueError(
            f"act() got an observation of shape {', '.join(str(found) for found, _ in shapes)}, "
            f"expected {', '.join(str(expected) for _, expected in shapes)} or a batch of them, "
            "with the batch axis first."
        )

    def _typed(self, observation: Any) -> Any:
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
