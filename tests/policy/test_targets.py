import numpy as np
import pytest
import tensorflow as tf

from policy import targets

both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])


@both
def test_q_target_prices_the_next_state_at_its_best_action(maybe_compile, compiled):
    target = maybe_compile(targets.q_target, compiled)(
        tf.constant([1.0, -1.0]), tf.constant([0.5, 0.0]), tf.constant([[2.0, 8.0], [30.0, 40.0]])
    )
    # row 0: 1 + 0.5 * 8 = 5 (a mean would give 3.5); row 1 terminated.
    np.testing.assert_allclose(target, [5.0, -1.0])


@both
def test_double_q_target_prices_the_online_choice_with_the_target_network(maybe_compile, compiled):
    next_q_online = tf.constant([[1.0, 3.0], [5.0, 2.0]])  # picks action 1, then action 0
    next_q_target = tf.constant([[20.0, 10.0], [30.0, 40.0]])
    target = maybe_compile(targets.double_q_target, compiled)(
        tf.constant([1.0, -1.0]), tf.constant([0.5, 0.0]), next_q_online, next_q_target
    )
    # row 0: 1 + 0.5 * 10 = 6 (plain DQN would give 11, swapped networks 2.5); row 1 terminated.
    np.testing.assert_allclose(target, [6.0, -1.0])


@pytest.mark.parametrize("rule", ["q", "double"])
def test_no_gradient_passes_through_a_target(rule):
    q = tf.Variable([[1.0, 2.0]])
    one = tf.constant([1.0])
    with tf.GradientTape() as tape:
        if rule == "q":
            target = targets.q_target(one, one, q)
        else:
            target = targets.double_q_target(one, one, q, q)
    assert tape.gradient(target, q) is None
