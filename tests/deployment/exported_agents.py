"""Small agents to export, each with another form of observations or actions."""

import functools

import numpy as np
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.c51 import C51Config
from kytolly.config.dqn import DQNConfig
from kytolly.config.iqn import IQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import Box, Discrete, EnvSpec, MultiDiscrete

VECTOR, IMAGE = tf.TensorSpec([4], tf.float32), tf.TensorSpec([36, 36, 2], tf.uint8)
DICT = {
    "far away": tf.TensorSpec([3], tf.float32),
    "near": tf.TensorSpec([2, 2], tf.float32),
    "picture": tf.TensorSpec([8, 8, 1], tf.uint8),
}
MASKED = {"place": tf.TensorSpec([3], tf.float32), "action_mask": tf.TensorSpec([5], tf.bool)}
SMALL = {"hidden_units": (16, 16), "xla": False}
AGENTS = {
    "dqn": (
        DQNConfig(xla=False, hidden_units=(64, 64)),
        EnvSpec("CartPole-v1", VECTOR, Discrete(2)),
    ),
    "dueling": (DQNConfig(**SMALL, network="dueling"), EnvSpec("none", VECTOR, Discrete(3))),
    "c51": (C51Config(**SMALL), EnvSpec("none", VECTOR, Discrete(3))),
    "iqn": (IQNConfig(**SMALL, network="dueling"), EnvSpec("none", VECTOR, Discrete(3))),
    "half": (DQNConfig(**SMALL, precision="mixed_float16"), EnvSpec("none", VECTOR, Discrete(3))),
    "image": (
        DQNConfig(**SMALL, precision="mixed_bfloat16"),
        EnvSpec("none", IMAGE, Discrete(3)),
    ),
    "ppo": (PPOConfig(**SMALL), EnvSpec("none", VECTOR, Discrete(3))),
    "normalized": (
        PPOConfig(**SMALL, normalize_observations=True),
        EnvSpec("Pendulum-v1", tf.TensorSpec([3], tf.float32), Box((-2.0,), (2.0,))),
    ),
    "normalized dqn": (
        DQNConfig(xla=False, hidden_units=(16,), normalize_observations=True),
        EnvSpec("none", tf.TensorSpec([3], tf.float32), Discrete(3)),
    ),
    "squashed": (
        PPOConfig(**SMALL, action_bounds="squash"),
        EnvSpec("none", VECTOR, Box((-1.0, 5.0), (1.0, 9.0))),
    ),
    "scaled": (PPOConfig(**SMALL), EnvSpec("none", VECTOR, Box((-1.0, 5.0), (1.0, 9.0)))),
    "masked": (PPOConfig(**SMALL), EnvSpec("none", MASKED, Discrete(5))),
    "masked parts": (PPOConfig(**SMALL), EnvSpec("none", MASKED, MultiDiscrete((2, 3)))),
    "dict": (PPOConfig(**SMALL, normalize_observations=True), EnvSpec("none", DICT, Discrete(4))),
}


@functools.cache
def agent_of(name):
    """The agent, with weights as far from one another as those of a trained one."""
    agent = make_agent(*AGENTS[name])
    network, rng = agent.policy.network, np.random.default_rng(0)
    if agent.cfg.normalize_observations:
        shifted = {key: 3.0 + 2.0 * part for key, part in draws(agent, 300, 5).items()}
        network.update_statistics(shifted.get("", shifted))
    for weight in network.trainable_variables:
        weight.assign(weight + rng.normal(0.0, 0.1, weight.shape))
    if getattr(network, "learns_scale", False):
        network.reward_scale.assign(0.25)  # action values are 4 times what it gives
    return agent


def draws(agent, count, seed):
    """Random observations by name; that of no Dict is called ""."""
    rng, spec = np.random.default_rng(seed), agent.env_spec.obs
    drawn = {}
    for name, one in (spec if isinstance(spec, dict) else {"": spec}).items():
        shape = (count, *one.shape)
        if one.dtype == tf.uint8:
            drawn[name] = rng.integers(0, 256, shape).astype(np.uint8)
        elif one.dtype == tf.bool:
            drawn[name] = rng.random(shape) < 0.4
            drawn[name][:, [1, 3]] = True  # of two parts of 2 and 3 actions, one each
        else:
            drawn[name] = rng.normal(0.0, 2.0, shape).astype(np.float32)
    return drawn


def observations(agent, count, seed=1):
    """Random observations [count, *obs] as `agent.act` takes them."""
    drawn = draws(agent, count, seed)
    return drawn.get("", drawn)
