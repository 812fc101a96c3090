"""A run in small: an agent with two networks, saved as it trains."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from kytolly.callback.checkpoint import CheckpointSaver
from kytolly.record.checkpoint import checkpoints
from kytolly.record.resume import restore
from tests.helpers.states import make_state


class ListOfLayers(keras.Model):
    """A model as users write it: its layers are in a list, which TensorFlow does not follow."""

    def __init__(self, units=3):
        super().__init__()
        self.units = units
        self.hidden = [keras.layers.Dense(units), keras.layers.Dense(2)]

    def build(self, input_shape):
        for layer in self.hidden:
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)
        self.built = True

    def call(self, x):
        for layer in self.hidden:
            x = layer(x)
        return x

    def get_config(self):
        return {"units": self.units}


class Unsaveable(ListOfLayers):
    get_config = keras.Model.get_config

    def __init__(self, units):
        super().__init__(units)


class Learner(tf.Module):
    """What an agent holds, in small: two networks, an optimizer, a buffer and a counter."""

    def __init__(self, units=3, rows=8, dtype=tf.float32, model=ListOfLayers):
        super().__init__()
        self.online, self.target = model(units), model(units)
        for network in (self.online, self.target):
            network.build((None, 4))
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.online.trainable_variables)
        self.rows = tf.Variable(tf.zeros([rows], dtype))
        self.env_steps = tf.Variable(0, dtype=tf.int64)

    def train(self, env_steps):
        """Give every variable a value that belongs to this number of env steps."""
        everything = [*self.online.variables, *self.target.variables, *self.optimizer.variables]
        for offset, variable in enumerate([*everything, self.rows]):
            value = np.full(variable.shape, env_steps + offset / 8)
            variable.assign(tf.cast(value, variable.dtype))
        self.env_steps.assign(env_steps)

    def values(self):
        everything = [*self.online.variables, *self.target.variables, *self.optimizer.variables]
        return [np.asarray(v) for v in (*everything, self.rows, self.env_steps)]


def state_of(learner, run_dir, env_steps, **changes):
    state = make_state(run_dir, env_steps, **changes)
    trackables = {"agent": learner}
    return dataclasses.replace(state, trackables=trackables, network=learner.online)


def train(run_dir, upto, *, start=0, interval=100, keep=2, log_every=50, learner=None):
    learner = learner or Learner()
    saver = CheckpointSaver(interval, keep)
    saver.on_train_begin(state_of(learner, run_dir, start))
    for env_steps in range(start + log_every, upto + 1, log_every):
        learner.train(env_steps)
        saver.on_interval_end(state_of(learner, run_dir, env_steps))
    saver.on_train_end(state_of(learner, run_dir, upto))
    return learner


def steps_on_disk(run_dir):
    return [steps for steps, _ in checkpoints(run_dir / "checkpoints")]


def restored_steps(run_dir):
    learner = Learner()
    restore(run_dir, {"agent": learner})
    return int(learner.env_steps)
