"""Looks at the rollouts that a loop hands to its agent."""

import numpy as np
import tensorflow as tf

from kytolly.policy.batch import Rollout


def watched(agent):
    """The list that every rollout is appended to, with the log-probabilities of its actions.

    The agent's program must not be compiled with XLA. The probabilities are those under the weights
    that the agent has when it is given the rollout.
    """
    seen, prepare = [], agent.prepare

    def remember(rollout, *args, **kwargs):
        rows = tf.nest.map_structure(
            lambda column: tf.reshape(column, [-1, *column.shape[2:]]),
            (rollout.obs, rollout.action),
        )
        policy = agent.policy
        log_prob = policy.distribution.log_prob(policy.outputs(rows[0])[0], rows[1])
        shown = (rollout, tf.reshape(log_prob, rollout.reward.shape))

        def keep(*leaves):
            copies = [np.array(leaf) for leaf in leaves]
            seen.append(tf.nest.pack_sequence_as(shown, copies))
            return np.int64(0)

        done = tf.numpy_function(keep, tf.nest.flatten(shown), tf.int64)
        with tf.control_dependencies([done]):
            rollout = tf.nest.map_structure(tf.identity, rollout)
        return prepare(rollout, *args, **kwargs)

    agent.prepare = remember
    return seen


def joined(seen):
    """All rollouts one after the other, [T * count, E, ...], and the log-probabilities."""
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *seen)


def assert_consecutive(rollout: Rollout):
    """Each copy's next row begins where the last one led to, unless its episode ended."""
    goes_on = ~rollout.last[:-1]
    for before, after in zip(
        tf.nest.flatten(rollout.next_obs), tf.nest.flatten(rollout.obs), strict=True
    ):
        np.testing.assert_array_equal(before[:-1][goes_on], after[1:][goes_on])
