import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.exploration import correlated, epsilon_greedy, linear_schedule
from kytolly.agent.randomness import RandomStream


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


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_correlated_noise_leans_on_the_number_before(kind):
    noise = np.array([[1.0], [2.0], [-1.0], [0.5], [3.0]], np.float32)
    # correlation 0.6, so sqrt(1 - 0.36) = 0.8 of the new number: 1; 0.6 + 1.6 = 2.2;
    # 1.32 - 0.8 = 0.52; 0.312 + 0.4 = 0.712; 0.4272 + 2.4 = 2.8272
    expected = [[1.0], [2.2], [0.52], [0.712], [2.8272]]
    given = tf.constant(noise) if kind == "tensor" else noise
    np.testing.assert_allclose(correlated(given, 0.6), expected, rtol=1e-6)
    np.testing.assert_array_equal(correlated(given, 0.0), noise)


def test_correlated_noise_stays_standard_normal_at_every_time():
    noise = np.random.default_rng(0).standard_normal((32, 20_000, 1)).astype(np.float32)
    found = correlated(noise, 0.9)[:, :, 0]
    np.testing.assert_allclose(found.std(axis=1), 1.0, atol=0.03)
    np.testing.assert_allclose(found.mean(axis=1), 0.0, atol=0.03)
    for time in (1, 2, 30):
        assert abs(np.corrcoef(found[time - 1], found[time])[0, 1] - 0.9) < 0.01
