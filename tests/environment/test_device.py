from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from environment.device import (
    DeviceState,
    check_environment,
    reset_all,
    step_and_reset,
    uniforms_per_step,
)
from environment.spec import Discrete, EnvSpec


class Count(NamedTuple):
    start: tf.Tensor
    grid: tf.Tensor


class Counter:
    """Counts up from 100 u by the action + 10 v; terminates above `goal`; reward is the action.

    `u` is the draw of the reset and `v` that of the step. The state holds a matrix per copy, the
    observation is [E, 1, 2]: where the episode started, and the count.
    """

    reset_uniforms, step_uniforms = 1, 1

    def __init__(self, max_episode_steps=None, goal=1e9):
        obs = tf.TensorSpec([1, 2], tf.float32)
        self.spec = EnvSpec("counter", obs, Discrete(3), max_episode_steps)
        self.goal = goal

    def reset(self, uniforms):
        start = 100.0 * uniforms[:, 0]
        return Count(start, start[:, None, None] * tf.ones([1, 2, 2]))

    def observe(self, state):
        return tf.stack([state.start, state.grid[:, 1, 1]], axis=-1)[:, None, :]

    def step(self, state, action, uniforms):
        reward = tf.cast(action, tf.float32)
        grid = state.grid + (reward + 10.0 * uniforms[:, 0])[:, None, None]
        return Count(state.start, grid), reward, grid[:, 0, 0] > self.goal


def stepped(env, state, action, uniforms, compiled):
    step = tf.function(step_and_reset, jit_compile=True) if compiled else step_and_reset
    return step(env, state, tf.constant(action, tf.int32), tf.constant(uniforms, tf.float32))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_step_and_reset_keeps_the_last_observation_and_begins_anew_only_where_an_episode_ended(
    compiled,
):
    env = Counter(goal=12.0)
    assert uniforms_per_step(env) == 2
    state, obs = reset_all(env, tf.constant([[0.1], [0.02]]))
    np.testing.assert_allclose(obs, [[[10, 10]], [[2, 2]]])
    np.testing.assert_array_equal(state.elapsed, [0, 0])

    # step draws come first: +10 * 0.1 = 1 and action 2 make 13 > 12; reset draws say 70 and 80.
    state, step, end = stepped(env, state, [2, 1], [[0.1, 0.7], [0.2, 0.8]], compiled)
    np.testing.assert_allclose(step.next_obs, [[[10, 13]], [[2, 5]]], rtol=1e-6)
    np.testing.assert_allclose(step.obs, [[[70, 70]], [[2, 5]]], rtol=1e-6)
    np.testing.assert_allclose(step.reward, [2, 1])
    np.testing.assert_array_equal(step.terminated, [True, False])
    np.testing.assert_array_equal(step.truncated, [False, False])
    np.testing.assert_array_equal(end.ended, [True, False])
    assert (end.episode_return.numpy()[0], end.episode_length.numpy()[0]) == (2.0, 1)
    np.testing.assert_allclose(state.env.grid[:, 0, 1], [70, 5], rtol=1e-6)
    np.testing.assert_array_equal(state.elapsed, [0, 1])
    np.testing.assert_array_equal(state.episode_return, [0, 1])
    assert isinstance(state, DeviceState) and isinstance(state.env, Count)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_a_time_limit_truncates_after_exactly_that_many_steps_and_counts_per_episode(compiled):
    env = Counter(max_episode_steps=3)
    state, _ = reset_all(env, tf.constant([[0.0]]))
    seen = []
    for action in (1, 2, 1, 0, 2, 2, 1):
        state, step, end = stepped(env, state, [action], [[0.0, 0.5]], compiled)
        row = (step.truncated, end.ended, end.episode_return, end.episode_length, step.obs)
        seen.append([float(np.ravel(value)[-1]) for value in row])
        assert not step.terminated.numpy().any()
    # truncated, ended, return so far, steps so far, what the agent sees next
    assert seen == [
        [0, 0, 1, 1, 1],
        [0, 0, 3, 2, 3],
        [1, 1, 4, 3, 50],  # next_obs is 4
        [0, 0, 0, 1, 50],
        [0, 0, 2, 2, 52],
        [1, 1, 4, 3, 50],
        [0, 0, 1, 1, 51],
    ]


def test_termination_on_the_last_allowed_step_raises_both_flags_as_in_gymnasium():
    env = Counter(max_episode_steps=1, goal=1.5)
    state, _ = reset_all(env, tf.zeros([2, 1]))
    _, step, end = stepped(env, state, [2, 1], np.zeros((2, 2)), compiled=False)
    np.testing.assert_array_equal(step.terminated, [True, False])
    np.testing.assert_array_equal(step.truncated, [True, True])
    np.testing.assert_array_equal(end.ended, [True, True])


def test_an_episode_may_end_before_its_time_limit():
    env = Counter(max_episode_steps=9, goal=1.5)
    state, _ = reset_all(env, tf.zeros([2, 1]))
    state, step, end = stepped(env, state, [2, 1], np.zeros((2, 2)), compiled=False)
    np.testing.assert_array_equal(end.ended, [True, False])
    np.testing.assert_array_equal(step.truncated, [False, False])
    np.testing.assert_array_equal(state.elapsed, [0, 1])


def replaced(**members):
    """A Counter of which some members are others."""
    env = Counter()
    for name, value in members.items():
        setattr(env, name, value)
    return env


def counter_step(change):
    return lambda state, action, uniforms: change(*Counter().step(state, action, uniforms))


SPEC = Counter().spec
REFUSED = [
    (object(), TypeError, "object has no spec, reset_uniforms, step_uniforms, reset, observe"),
    (replaced(step=3), TypeError, "Counter.step is 3, expected a method"),
    (replaced(reset_uniforms=-1), TypeError, "reset_uniforms is -1, expected an integer of at"),
    (replaced(step_uniforms=2.0), TypeError, "step_uniforms is 2.0, expected an integer"),
    (replaced(spec="counter"), TypeError, "spec is 'counter' .str., expected an EnvSpec"),
    (
        replaced(spec=SPEC._replace(obs=tf.TensorSpec([None, 2]))),
        TypeError,
        "spec.obs is .*every axis is known",
    ),
    (replaced(spec=SPEC._replace(action=Discrete(0))), TypeError, "count is 0, .* at least 1"),
    (
        replaced(spec=SPEC._replace(max_episode_steps=0)),
        TypeError,
        "max_episode_steps is 0, expected",
    ),
    (
        replaced(reset=lambda uniforms: tf.zeros([3, 2])),
        ValueError,
        r"reset\(\) holds a float32 tensor of shape \(3, 2\).*with 2 rows",
    ),
    (replaced(reset=lambda uniforms: 0.0), ValueError, r"reset\(\) holds 0.0 \(float\)"),
    (
        replaced(reset=lambda uniforms: Counter().reset(tf.random.uniform([2, 1]))),
        ValueError,
        "two different states for the same uniforms",
    ),
    (
        replaced(observe=lambda state: tf.zeros([2, 2])),
        ValueError,
        r"observe\(\) is a float32 tensor of shape \(2, 2\), expected a float32 tensor of shape "
        r"\(2, 1, 2\)",
    ),
    (
        replaced(observe=lambda state: tf.zeros([2, 1, 2], tf.float64)),
        ValueError,
        "is a float64 tensor .* expected a float32",
    ),
    (
        replaced(observe=lambda state: tf.fill([2, 1, 2], np.nan)),
        ValueError,
        r"observe\(\) is not finite",
    ),
    (
        replaced(step=counter_step(lambda state, reward, end: (state, reward, end, end))),
        ValueError,
        "expected a tuple of three",
    ),
    (
        replaced(step=counter_step(lambda state, reward, end: (state.grid, reward, end))),
        ValueError,
        "not the same nest as that of reset",
    ),
    (
        replaced(
            step=counter_step(
                lambda state, reward, end: (Count(state.start, state.grid[:, :1]), reward, end)
            )
        ),
        ValueError,
        r"step\(\) has shapes and dtypes .*expected those of reset",
    ),
    (
        replaced(step=counter_step(lambda state, reward, end: (state, reward[:, None], end))),
        ValueError,
        r"reward of Counter.step\(\) is a float32 tensor of shape \(2, 1\)",
    ),
    (
        replaced(step=counter_step(lambda state, reward, end: (state, reward / 0.0, end))),
        ValueError,
        r"reward of Counter.step\(\) is not finite",
    ),
    (
        replaced(
            step=counter_step(lambda state, reward, end: (state, reward, tf.cast(end, tf.int32)))
        ),
        ValueError,
        r"terminated of Counter.step\(\) is a int32 tensor.*expected a bool",
    ),
]


@pytest.mark.parametrize(("env", "error", "message"), REFUSED)
def test_check_environment_refuses_by_name_and_says_what_was_expected(env, error, message):
    with pytest.raises(error, match=message):
        check_environment(env)


def test_check_environment_accepts_a_good_one():
    check_environment(Counter())
