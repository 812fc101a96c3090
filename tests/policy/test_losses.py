import numpy as np
import tensorflow as tf

from policy import losses


def test_weighted_huber_is_quadratic_then_linear_and_weighted():
    td_error = tf.constant([0.5, -3.0, 1.0])
    weight = tf.constant([1.0, 2.0, 0.0])
    # delta 2: 0.5*0.25 = 0.125; 2*3 - 0.5*4 = 4, times 2 = 8; weight 0. Mean over three rows.
    np.testing.assert_allclose(losses.weighted_huber(td_error, weight, 2.0), 8.125 / 3, rtol=1e-6)


def test_weighted_huber_gradient_is_the_clipped_error():
    td_error = tf.Variable([0.5, -3.0, 7.0])
    with tf.GradientTape() as tape:
        loss = losses.weighted_huber(td_error, tf.ones(3), 2.0)
    np.testing.assert_allclose(
        tape.gradient(loss, td_error), np.array([0.5, -2.0, 2.0]) / 3, rtol=1e-5
    )
