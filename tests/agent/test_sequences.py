"""Batches of whole sequences, from rollouts and from replay memories."""

from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent, make_network
from kytolly.agent.sequences import (
    PrioritizedSequences,
    Refreshable,
    SequenceReplay,
    SequenceRollout,
)
from kytolly.config.ppo import PPOConfig
from kytolly.config.pqn import PQNConfig
from kytolly.environment.memory import FIRST, MEMORY, OBSERVATION
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.remembering import RememberingEnv
from kytolly.policy.batch import Transition, merge_time

ENVS, STEPS, LENGTH = 3, 6, 2


class Rows(NamedTuple):
    """Rows of a rollout, as a policy makes them."""

    obs: Any
    number: Any


def rollout_rows():
    """Row t * ENVS + e is step t of environment e, and says so in each column."""
    numbers = tf.range(STEPS * ENVS)
    shown = tf.cast(numbers, tf.float32)[:, tf.newaxis]
    obs = {OBSERVATION: shown, MEMORY: shown + 100.0, FIRST: numbers < ENVS}
    return Rows(obs, numbers)


def test_each_sequence_of_a_rollout_is_in_an_epoch_once_with_the_memory_before_it():
    updates, epochs = 3, 2
    buffer = SequenceRollout(
        length=LENGTH,
        num_envs=ENVS,
        rows_per_update=STEPS * ENVS // updates,
        updates_per_epoch=updates,
        epochs=epochs,
    )
    words = np.random.default_rng(0).integers(2**32, size=buffer.num_random_words, dtype=np.uint32)
    orders = []
    for epoch in range(epochs):
        taken = []
        for update in range(updates):
            batch = buffer.batch(rollout_rows(), epoch * updates + update, tf.constant(words))
            numbers = batch.number.numpy().reshape(-1, LENGTH)
            np.testing.assert_array_equal(numbers[:, 1], numbers[:, 0] + ENVS)  # the next step
            assert set(numbers[:, 0] // ENVS % LENGTH) == {0}  # sequences do not overlap
            np.testing.assert_array_equal(batch.obs[MEMORY][:, 0], numbers[:, 0] + 100.0)
            np.testing.assert_array_equal(batch.obs[OBSERVATION][:, 0], numbers.reshape(-1))
            taken.append(batch.number.numpy())
        orders.append(np.concatenate(taken))
        assert sorted(orders[-1]) == list(range(STEPS * ENVS))
    assert (orders[0] != orders[1]).any()


@pytest.mark.parametrize("kind", [SequenceReplay, PrioritizedSequences])
def test_a_window_of_replay_has_the_steps_of_one_environment_and_the_memory_before_them(kind):
    capacity, envs, width = 12, 2, 3
    spec = {
        OBSERVATION: tf.TensorSpec([1]),
        MEMORY: tf.TensorSpec([1]),
        FIRST: tf.TensorSpec([], tf.bool),
    }
    memory = kind(capacity, spec, envs, n_step=width, cuts_explored=True)
    for moment in range(8):  # 16 rows: the first four are overwritten
        numbers = envs * moment + tf.range(envs)
        shown = tf.cast(numbers, tf.float32)[:, tf.newaxis]
        obs = {OBSERVATION: shown, MEMORY: shown + 100.0, FIRST: numbers < 0}
        rows = Transition(obs, numbers, shown[:, 0], tf.ones([envs]), obs)
        last, explored = tf.equal(numbers, 9), tf.equal(numbers, 12)
        memory.add(rows, last, explored)
    found = memory.rows_at(tf.constant([7, 8]))  # rows 7 and 8: 7, 9, 11 and 8, 10, 12
    np.testing.assert_array_equal(found.action, [7, 9, 11, 8, 10, 12])
    np.testing.assert_array_equal(found.obs[MEMORY], [[107.0], [108.0]])
    np.testing.assert_array_equal(found.next_obs[OBSERVATION][:, 0], found.action)
    assert MEMORY not in found.next_obs
    # The episode ends with row 9; the action of row 12 is random, so a return ends with row 10.
    np.testing.assert_array_equal(found.cut, [False, True, False, False, True, False])


@pytest.mark.parametrize("memory", ["gru", "lstm", "lru"])
def test_memories_are_brought_up_to_date_at_the_start_of_each_later_epoch(memory):
    cfg = PPOConfig(
        memory=memory,
        memory_units=4,
        memory_length=LENGTH,
        memory_refresh=True,
        num_envs=ENVS,
        rollout_steps=STEPS,
        num_minibatches=3,
        epochs=2,
        hidden_units=(5,),
    )
    agent = make_agent(cfg, RememberingEnv(CartPole(), cfg.state_units).spec)
    buffer, policy = agent.memory, agent.policy
    rng = np.random.default_rng(0)
    stored = rng.normal(size=[STEPS, ENVS, cfg.state_units]).astype(np.float32)
    first = np.zeros([STEPS, ENVS], bool)
    first[3, 1] = first[4, 2] = True  # within a sequence, and at its start
    seen = rng.normal(size=[STEPS, ENVS, 4]).astype(np.float32)
    obs = {name: tf.constant(part)
           for name, part in {OBSERVATION: seen, MEMORY: stored, FIRST: first}.items()}  # fmt: skip
    rows = Rows(tf.nest.map_structure(merge_time, obs), tf.range(STEPS * ENVS))
    expected, state = [], obs[MEMORY][0]
    for time in range(STEPS):  # one step after the other
        state = tf.where(first[time, :, np.newaxis], 0.0, state)
        expected.append(state)
        now = {OBSERVATION: obs[OBSERVATION][time], MEMORY: state, FIRST: obs[FIRST][time]}
        state = policy.step(now, policy.current_weights())[-1]
    expected = tf.reshape(tf.stack(expected), [-1, cfg.state_units]).numpy()

    opened = Refreshable(rows, obs, policy)
    buffer.starts.assign(tf.reshape(obs[MEMORY][::LENGTH], buffer.starts.shape))
    words = tf.constant(rng.integers(2**32, size=buffer.num_random_words, dtype=np.uint32))
    batch = tf.function(buffer.batch, jit_compile=True)
    for update in range(cfg.updates_per_iteration):
        taken = batch(opened, tf.constant(update), words)
        begin = taken.number.numpy().reshape(-1, LENGTH)[:, 0]
        known = expected if update >= cfg.updates_per_epoch else stored.reshape(expected.shape)
        reset = first.reshape(-1)[begin][:, np.newaxis]
        found = np.where(reset, 0.0, taken.obs[MEMORY])
        np.testing.assert_allclose(found, np.where(reset, 0.0, known[begin]), atol=1e-6)


class NoState(keras.Model):
    """Has a call of observations alone."""

    def call(self, obs):
        return obs


def two_inputs():
    """A functional model of an observation and a state."""
    obs, state = keras.Input([4]), keras.Input([3])
    return keras.Model([obs, state], [keras.layers.Dense(2)(obs), state])


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (lambda _: keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]), "Sequential"),
        (lambda _: two_inputs(), "Functional"),
        (lambda _: NoState(), r"NoState with call\(obs\)"),
    ],
)
def test_a_model_whose_call_takes_no_state_is_refused_with_the_call_that_does(model, kind):
    cfg = PQNConfig(memory="model", memory_units=3)
    spec = RememberingEnv(CartPole(), cfg.state_units, False).spec
    with pytest.raises(ValueError, match=rf"{kind}.*call\(self, obs, state, training=False\)"):
        make_network(cfg, spec, model)


class Cell(keras.Model):
    """Action values of a GRU with a state of `units` numbers."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units, self.cell = units, keras.layers.GRUCell(units)
        self.values = keras.layers.Dense(2)

    def call(self, obs, state, training=False):
        output, (state,) = self.cell(obs, [state])
        return self.values(output), state

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def test_a_model_with_another_state_than_memory_units_is_told_of_the_setting():
    cfg = PQNConfig(memory="model", memory_units=5)
    spec = RememberingEnv(CartPole(), cfg.state_units, False).spec
    with pytest.raises(ValueError, match="states of 5 numbers, as memory_units says"):
        make_network(cfg, spec, Cell(3))
