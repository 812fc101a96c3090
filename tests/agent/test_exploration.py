import numpy as np
import tensorflow as tf

from agent.exploration import epsilon_greedy, linear_schedule
from agent.random_stream import RandomStream


def test_linear_schedule_falls_and_stays():
    values = [float(linear_schedule(1.0, 0.2, 8, tf.constant(done))) for done in (-5, 0, 2, 8, 99)]
    np.testing.assert_allclose(values, [1.0, 1.0, 0.8, 0.2, 0.2], rtol=1e-6)


def test_epsilon_greedy_acts_best_or_anyhow():
    q = tf.tile([[0.0, 5.0, 1.0]], [30_000, 1])
    bits = tf.reshape(RandomStream(0).bits(60_000), [30_000, 2])
    assert set(epsilon_greedy(q, tf.constant(0.0), bits).numpy()) == {1}
    shares = np.bincount(epsilon_greedy(q, tf.constant(0.3), bits).numpy()) / 30_000
    # the best action also comes up among the random ones: 0.7 + 0.3/3
    np.testing.assert_allclose(shares, [0.1, 0.8, 0.1], atol=0.01)
