"""A linear network for PPO, whose gradients NumPy can compute, and rows for it."""

import keras
import numpy as np
import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.ppo import PPOBatch

VECTOR = EnvSpec("vector", tf.TensorSpec([3]), Discrete(2))
DEFAULTS = {"num_envs": 2, "rollout_steps": 4, "num_minibatches": 1, "hidden_units": (8,)}


class Linear(keras.Model):
    """Params and a value that are linear in the observation, all from given weights."""

    def __init__(self, params, value):
        super().__init__()
        self.given = np.asarray(params, np.float32), np.asarray(value, np.float32)
        self.params, self.value = (
            self.add_weight(shape=one.shape, initializer=lambda *_, one=one, **__: one)
            for one in self.given
        )

    def call(self, obs):
        return obs @ self.params, tf.squeeze(obs @ self.value[:, tf.newaxis], -1)

    def get_config(self):
        return {"params": self.given[0].tolist(), "value": self.given[1].tolist()}


PARAMS = np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]], np.float32)
VALUE = np.array([0.5, -1.0, 0.25], np.float32)


def make_batch(rows=8, seed=0):
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(4, rows)).astype(np.float32)
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    log_prob, advantage, target, value = columns
    return PPOBatch(
        tf.constant(obs),
        tf.constant(rng.integers(2, size=rows), tf.int32),
        tf.constant(-0.7 + 0.4 * log_prob),
        tf.constant(3.0 + 2.0 * advantage),
        tf.constant(target),
        tf.constant(value),
    )


def softmax(logits):
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)
