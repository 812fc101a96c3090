"""The network that a configuration describes, where the user gives none."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.environment.spec import EnvSpec


def default_network(cfg: Any, env_spec: EnvSpec) -> keras.Model:
    """The built network; Keras's global policy decides its precision."""
    distribution = part(cfg.algorithm, "policy").distribution_for(cfg, env_spec)
    seen = env_spec.network_input()
    network = part(cfg.algorithm, "network")(cfg, seen, distribution)
    network(tf.nest.map_structure(lambda s: tf.zeros([2, *s.shape], s.dtype), seen))
    return network
