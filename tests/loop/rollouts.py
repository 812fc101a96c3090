"""Looks at the rollouts that a loop hands to its agent."""

import numpy as np
import tensorflow as tf

from kytolly.policy.batch import Rollout, map_columns, merge_time, present, with_present


def watch(agent):
    """The list that every rollout is appended to, with the log-probabilities of its actions.

    The agent's program must not be compiled with XLA. The probabilities are those under the weights
    that the agent has when it is given the rollout.
    """
    seen, observe = [], agent.observe

    def remember(rollout):
        obs, action = merge_time(rollout.obs), merge_time(rollout.action)
        policy = agent.policy
        params = policy.outputs(obs, policy.current_weights())[0]
        shown = rollout, None
        if hasattr(policy.distribution, "log_prob"):  # action values have none
            log_prob = policy.distribution.log_prob(params, action)
            shown = rollout, tf.reshape(log_prob, rollout.reward.shape)

        def keep(*leaves):
            copies = [np.array(leaf) for leaf in leaves]
            seen.append(with_present(shown, copies))
            return np.int64(0)

        done = tf.numpy_function(keep, present(shown), tf.int64)
        with tf.control_dependencies([done]):
            rollout = map_columns(tf.identity, rollout)
        return observe(rollout)

    agent.observe = remember
    return seen


def join(seen):
    """All rollouts one after the other, [T * count, E, ...], and the log-probabilities."""
    columns = zip(*map(present, seen), strict=True)
    return with_present(seen[0], [np.concatenate(parts) for parts in columns])


def assert_consecutive(rollout: Rollout):
    """The next row of an environment begins where the last one led to, unless its episode ended."""
    goes_on = ~rollout.last[:-1]
    for before, after in zip(
        tf.nest.flatten(rollout.next_obs), tf.nest.flatten(rollout.obs), strict=True
    ):
        np.testing.assert_array_equal(before[:-1][goes_on], after[1:][goes_on])


def assert_predictable(rollout: Rollout, gamma: float):
    """Rows are steps of `Predictable`: one more each, paid for the action, ended as foretold."""
    env, episode, step = np.moveaxis(rollout.obs, -1, 0)
    np.testing.assert_array_equal(rollout.next_obs, rollout.obs + [0, 0, 1])  # never after a reset
    np.testing.assert_array_equal(rollout.reward, 100 * episode + 10 * step + rollout.action)
    np.testing.assert_array_equal(rollout.last, step + 1 == 2 + (env + episode) % 3)
    terminated = rollout.last & (episode % 2 == 0)
    np.testing.assert_allclose(rollout.discount, np.where(terminated, 0.0, gamma), rtol=1e-6)
    assert terminated.any() and (rollout.last & ~terminated).any()
    # Each column is one environment; after an end comes the first step of its next episode.
    assert (env == env[0]).all() and len(set(env[0])) == env.shape[1]
    ended = rollout.last[:-1]
    assert (step[1:][ended] == 0).all() and (np.diff(episode, axis=0)[ended] == 1).all()
