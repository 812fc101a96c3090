"""Q-learning of sequences against the same computed one step after another."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.environment.memory import FIRST, MEMORY, OBSERVATION
from kytolly.environment.memory_spec import remembering_spec
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.sequence_q import Sequences

GAMMA, COUNT, BURN_IN, LENGTH, STEPS = 0.9, 2, 2, 3, 2
WIDTH = BURN_IN + LENGTH + STEPS - 1
SPEC = EnvSpec("probe", tf.TensorSpec([2]), Discrete(3))


def make_policy(**settings):
    cfg = DQNConfig(
        memory="gru",
        memory_units=4,
        memory_length=LENGTH,
        memory_burn_in=BURN_IN,
        n_step=STEPS,
        gamma=GAMMA,
        batch_size=COUNT * LENGTH,
        hidden_units=(5, 4),
        reward_scale=1.0,
        huber_delta=100.0,
        **settings,
    )
    policy = make_agent(cfg, remembering_spec(SPEC, 4, False)).policy
    noise = np.random.default_rng(3).normal(0.0, 0.3, policy.weights.vector.shape)
    policy.target_vector.assign_add(noise.astype(np.float32))
    return policy


def make_batch():
    """Two sequences; in the first an episode terminates at step 3, in the second one is cut."""
    rng = np.random.default_rng(0)
    rows = COUNT * WIDTH
    last, discount = np.zeros([COUNT, WIDTH], bool), np.full([COUNT, WIDTH], GAMMA, np.float32)
    last[0, 3], discount[0, 3], last[1, 4] = True, 0.0, True
    first = np.zeros_like(last)
    first[:, 1:] = last[:, :-1]
    obs = rng.normal(size=[rows, 2]).astype(np.float32)
    memory = rng.normal(size=[COUNT, 4]).astype(np.float32)
    return Sequences(
        {OBSERVATION: obs, FIRST: first.reshape(-1), MEMORY: memory},
        rng.integers(3, size=rows).astype(np.int32),
        rng.normal(size=rows).astype(np.float32),
        discount.reshape(-1),
        {OBSERVATION: rng.normal(size=[rows, 2]).astype(np.float32), FIRST: np.zeros(rows, bool)},
        last.reshape(-1),
        weight=np.array([1.0, 0.5], np.float32),
    )


def step_by_step(policy, batch, double):
    """The errors [COUNT, LENGTH] by calls of the network for one step of one sequence."""
    network, vectors = policy.network, (policy.weights.vector, policy.target_vector)

    def call(which, obs, memory):
        rows = {OBSERVATION: obs[np.newaxis], FIRST: np.zeros(1, bool), MEMORY: memory}
        weights = policy.weights.split(vectors[which])
        q, after = policy.weights.call(weights, tf.nest.map_structure(tf.constant, rows), network)
        return q.numpy()[0], after.numpy()

    def rows(column, sequence):
        return np.asarray(column).reshape(COUNT, WIDTH, *np.shape(column)[1:])[sequence]

    errors = np.zeros([COUNT, LENGTH])
    for s in range(COUNT):
        q, next_q = np.zeros([2, WIDTH, 3]), np.zeros([2, WIDTH, 3])
        for which in range(2):
            memory = batch.obs[MEMORY][s : s + 1]
            for t in range(WIDTH):
                if rows(batch.obs[FIRST], s)[t]:
                    memory = np.zeros_like(memory)
                q[which, t], memory = call(which, rows(batch.obs[OBSERVATION], s)[t], memory)
                next_q[which, t] = call(which, rows(batch.next_obs[OBSERVATION], s)[t], memory)[0]
        for t in range(LENGTH):
            total, weight = 0.0, 1.0
            for now in range(BURN_IN + t, BURN_IN + t + STEPS):
                total += weight * rows(batch.reward, s)[now]
                weight *= rows(batch.discount, s)[now]
                if rows(batch.cut, s)[now]:
                    break
            best = next_q[0 if double else 1, now].argmax()
            target = total + weight * next_q[1, now, best]
            errors[s, t] = target - q[0, BURN_IN + t, rows(batch.action, s)[BURN_IN + t]]
    return errors


@pytest.mark.parametrize("double", [False, True])
def test_errors_loss_and_priorities(double):
    policy, batch = make_policy(double=double), make_batch()
    tensors = tf.nest.map_structure(lambda x: None if x is None else tf.constant(x), batch)
    errors = step_by_step(policy, batch, double)
    loss = policy.loss(tensors, policy.current_weights(), policy.hyper)
    size = np.abs(errors)
    weighted = 0.5 * errors**2 * np.array([[1.0], [0.5]])
    np.testing.assert_allclose(loss.loss, weighted.mean(), rtol=1e-4)
    np.testing.assert_allclose(loss.metrics[1], size.mean(), rtol=1e-4)
    np.testing.assert_allclose(
        loss.td_error, 0.9 * size.max(axis=1) + 0.1 * size.mean(axis=1), rtol=1e-4
    )


def test_no_gradient_passes_through_burn_in():
    policy, batch = make_policy(), make_batch()
    obs = tf.constant(batch.obs[OBSERVATION])
    with tf.GradientTape() as tape:
        tape.watch(obs)
        tensors = tf.nest.map_structure(lambda x: None if x is None else tf.constant(x), batch)
        tensors = tensors._replace(obs={**tensors.obs, OBSERVATION: obs})
        loss = policy.loss(tensors, policy.current_weights(), policy.hyper).loss
    by_row = np.abs(tape.gradient(loss, obs).numpy()).reshape(COUNT, WIDTH, 2).sum(-1)
    assert (by_row[:, :BURN_IN] == 0.0).all()
    assert (by_row[:, BURN_IN : BURN_IN + LENGTH] > 0.0).all()
