import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.spec import Box, MultiDiscrete
from kytolly.environment.tensor.stepping import (
    DeviceState,
    reset_all,
    step_and_reset,
    uniforms_per_step,
)
from tests.environment.tensor_worlds import Count, Counter, Keypad


def step_function(env, compiled):
    """`step_and_reset` of an environment, eager or compiled once."""

    def step(state, action, uniform):
        return step_and_reset(env, state, action, uniform)

    step = tf.function(step, jit_compile=True, autograph=False) if compiled else step
    return lambda state, action, uniform: step(
        state, tf.constant(action), tf.constant(uniform, tf.float32)
    )


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
    play = step_function(env, compiled)
    state, step = play(state, [2, 1], [[0.1, 0.7], [0.2, 0.8]])
    np.testing.assert_allclose(step.next_obs, [[[10, 13]], [[2, 5]]], rtol=1e-6)
    np.testing.assert_allclose(step.obs, [[[70, 70]], [[2, 5]]], rtol=1e-6)
    np.testing.assert_allclose(step.reward, [2, 1])
    np.testing.assert_array_equal(step.terminated, [True, False])
    np.testing.assert_array_equal(step.truncated, [False, False])
    np.testing.assert_array_equal(step.ended, [True, False])
    assert (step.episode_return.numpy()[0], step.episode_length.numpy()[0]) == (2.0, 1)
    np.testing.assert_allclose(state.env.grid[:, 0, 1], [70, 5], rtol=1e-6)
    np.testing.assert_array_equal(state.elapsed, [0, 1])
    np.testing.assert_array_equal(state.episode_return, [0, 1])
    assert isinstance(state, DeviceState) and isinstance(state.env, Count)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_a_time_limit_truncates_after_exactly_that_many_steps_and_counts_per_episode(compiled):
    env = Counter(max_episode_steps=3)
    state, _ = reset_all(env, tf.constant([[0.0]]))
    play, seen = step_function(env, compiled), []
    for action in (1, 2, 1, 0, 2, 2, 1):
        state, step = play(state, [action], [[0.0, 0.5]])
        row = (step.truncated, step.ended, step.episode_return, step.episode_length, step.obs)
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
    _, step = step_function(env, compiled=False)(state, [2, 1], np.zeros((2, 2)))
    np.testing.assert_array_equal(step.terminated, [True, False])
    np.testing.assert_array_equal(step.truncated, [True, True])
    np.testing.assert_array_equal(step.ended, [True, True])


def test_an_episode_may_end_before_its_time_limit():
    env = Counter(max_episode_steps=9, goal=1.5)
    state, _ = reset_all(env, tf.zeros([2, 1]))
    state, step = step_function(env, compiled=False)(state, [2, 1], np.zeros((2, 2)))
    np.testing.assert_array_equal(step.ended, [True, False])
    np.testing.assert_array_equal(step.truncated, [False, False])
    np.testing.assert_array_equal(state.elapsed, [0, 1])


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_every_entry_of_a_dict_is_reset_where_an_episode_ended_and_kept_in_next_obs(compiled):
    env = Keypad(Box((-1.0, -2.0), (1.0, 2.0)))
    state, obs = reset_all(env, tf.constant([[0.0], [0.9]]))
    np.testing.assert_array_equal(obs["code"], [[0], [1]])
    play = step_function(env, compiled)
    for _ in range(2):
        state, after = play(state, [[0.5, 1.0], [-0.5, 2.0]], [[0.0], [0.1]])
    # environment 1 went from code 1 over 2 to 3 and ended; its new episode begins at code 0.
    np.testing.assert_array_equal(after.ended, [False, True])
    np.testing.assert_array_equal(after.next_obs["code"], [[2], [3]])
    np.testing.assert_array_equal(after.obs["code"], [[2], [0]])
    np.testing.assert_array_equal(after.next_obs["image"], np.full((2, 2, 2), 2))
    np.testing.assert_array_equal(after.obs["image"][:, 1, 1], [2, 0])
    np.testing.assert_array_equal(after.reward, [1.5, 1.5])
    assert after.obs["image"].dtype == tf.uint8 and set(after.obs) == set(env.spec.obs)


def test_dict_observations_travel_through_a_compiled_loop():
    env = Keypad(MultiDiscrete((2, 3)), mask=(1, 1, 1, 1, 1))

    @tf.function(jit_compile=True, autograph=False)
    def run(uniform):
        def body(index, state, obs, total):
            state, after = step_and_reset(env, state, tf.constant([[1, 2], [0, 1]]), uniform)
            return index + 1, state, after.obs, total + after.reward

        state, obs = reset_all(env, uniform)
        start = (0, state, obs, tf.zeros([2]))
        return tf.while_loop(lambda index, *_: index < 7, body, start)

    _, state, obs, total = run(tf.constant([[0.0], [1.0]]))
    np.testing.assert_array_equal(total, [21, 7])
    # episodes of 3 and of 2 steps: seven steps leave 1 and 1 behind them, from codes 0 and 1
    np.testing.assert_array_equal(obs["code"], [[1], [2]])
    np.testing.assert_array_equal(state.elapsed, [1, 1])
