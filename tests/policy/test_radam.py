"""RAdam: steps by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.pqn import PQNConfig
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.policy.adamw import RAdam, make_adam, rectification


def made(**settings):
    return make_adam(0.1, [], kind=RAdam, epsilon=1e-8, **settings)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_the_first_five_steps_are_momentum_and_the_sixth_is_rectified(compiled):
    weights = keras.Variable([2.0, -1.0])
    optimizer = made()
    optimizer.build([weights])
    step = tf.function(lambda g: optimizer.apply([g], [weights]), jit_compile=compiled or None)
    gradients = np.array([[3.0, -1.0], [1.0, 2.0], [-2.0, 0.5], [4.0, 0.0], [1.0, 1.0], [2.0, 3.0]])
    expected, momentum, square = np.array([2.0, -1.0]), np.zeros(2), np.zeros(2)
    for number, gradient in enumerate(gradients, 1):
        momentum = 0.9 * momentum + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        mean = momentum / (1 - 0.9**number)
        if number < 6:  # the squares' average is as long as 1.0, 2.0, 3.0, 4.0, 5.0 - 0.01 steps
            expected = expected - 0.1 * mean
        else:
            # 1999 - 2 * 6 * 0.999**6 / (1 - 0.999**6) = 5.994: of that
            # sqrt(1.994 * 3.994 * 1999 / (1995 * 1997 * 5.994)) = 0.025821
            adam = mean / (np.sqrt(square / (1 - 0.999**number)) + 1e-8)
            expected = expected - 0.1 * 0.025821 * adam
        step(tf.constant(gradient, tf.float32))
        np.testing.assert_allclose(weights, expected, rtol=2e-5)
    # The first step is the gradient, not its sign: 2 - 0.1 * 3, where Adam's is 2 - 0.1.


@pytest.mark.parametrize(
    "step, expected", [(1, 0.0), (5, 0.0), (6, 0.025821), (1_000, 0.6453), (1_000_000, 1.0)]
)
def test_the_share_of_adams_step_rises_from_0_to_1(step, expected):
    found = rectification(tf.constant(float(step)), 0.999)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_it_warms_up_and_decays_as_adam_does():
    kernel, bias = keras.Variable([[2.0]], name="kernel"), keras.Variable([2.0], name="bias")
    vector = keras.Variable([2.0, 2.0])
    optimizer = make_adam(0.1, [kernel, bias], 0.5, 2, 1e-8, kind=RAdam)
    optimizer.build([vector])
    optimizer.apply([tf.constant([3.0, 3.0])], [vector])
    # The first rate is 0.05: 2 - 0.05 x 0.5 x 2 - 0.05 x 3, and the bias does not decay.
    np.testing.assert_allclose(vector, [1.8, 1.85], rtol=1e-6)


def test_pqn_learns_by_it():
    policy = make_agent(PQNConfig(), CartPole().spec).policy
    assert isinstance(policy.optimizer, RAdam)
    assert float(policy.optimizer.learning_rate) == pytest.approx(PQNConfig().learning_rate)
