"""What a memory adds to an environment's spec and its observations."""

import functools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.wrappers import FrameStackObservation

from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.remembering import RememberingHostEnv, remembering
from kytolly.environment.gym.step import HostStep
from kytolly.environment.memory_spec import plain_spec, remembering_spec, shown_action
from kytolly.environment.spec import Box, Discrete, EnvSpec, MultiDiscrete
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.remembering import RememberingEnv
from kytolly.environment.tensor.stepping import reset_all, step_and_reset, uniforms_per_step

SPEC = EnvSpec("probe", tf.TensorSpec([2]), Discrete(3))


@pytest.mark.parametrize(
    "obs", [tf.TensorSpec([2]), {"a": tf.TensorSpec([1]), "b": tf.TensorSpec([])}]
)
def test_what_is_added_can_be_taken_off(obs):
    spec = SPEC._replace(obs=obs)
    whole = remembering_spec(spec, 5, True)
    assert whole.obs["agent_memory"].shape == [5] and whole.obs["agent_previous_action"].shape == [
        3
    ]
    assert plain_spec(whole) == spec


def test_a_stack_of_frames_beside_a_memory_is_warned_of():
    with pytest.warns(UserWarning, match="stacks observations"):
        spec = remembering_spec(SPEC._replace(frame_stack=4), 5, False)
    assert spec.frame_stack == 0


def test_actions_are_shown_as_numbers():
    np.testing.assert_array_equal(shown_action(SPEC, np.array([2, 0])), [[0, 0, 1], [1, 0, 0]])
    several = SPEC._replace(action=MultiDiscrete((2, 3)))
    np.testing.assert_array_equal(shown_action(several, np.array([[1, 2]])), [[0, 1, 0, 0, 1]])
    real = SPEC._replace(action=Box((-1.0,), (1.0,)))
    np.testing.assert_array_equal(shown_action(real, np.array([[0.5]])), [[0.5]])


class Steps:
    """Two environments on the host whose steps are given."""

    spec, num_envs, has_dummy_steps, given, restarts = SPEC, 2, True, None, None

    def __init__(self, steps):
        self.steps = list(steps)

    def reset(self, seed=None):
        return np.zeros([2, 2], np.float32)

    def begin_step(self, action):
        self.action = action

    def finish_step(self):
        ended, valid, reward = self.steps.pop(0)
        obs, flags = np.ones([2, 2], np.float32), np.zeros(2, bool)
        numbers = np.array(reward, np.float32)
        ended, valid = np.array(ended), np.array(valid)
        return HostStep(obs, numbers, ended, flags, obs, valid, ended, numbers, numbers)


def test_on_the_host_a_memory_lasts_until_an_episode_ends_or_a_reset_takes_a_step():
    env = RememberingHostEnv(
        Steps(
            [
                ([False, True], [True, True], [1.0, 2.0]),
                ([False, False], [True, False], [3.0, 0.0]),  # the second only began anew
                ([False, False], [True, True], [4.0, 5.0]),
            ]
        ),
        units=1,
        shows_previous=True,
    )
    assert env.reset()["agent_first"].all()
    memory = np.array([[7.0], [8.0]])
    step = env.step((np.array([0, 1]), memory))
    np.testing.assert_array_equal(step.next_obs["agent_memory"], memory)  # before the reset
    np.testing.assert_array_equal(step.next_obs["agent_previous_reward"], [[1.0], [2.0]])
    np.testing.assert_array_equal(step.obs["agent_memory"], [[7.0], [0.0]])
    np.testing.assert_array_equal(step.obs["agent_first"], [False, True])
    np.testing.assert_array_equal(step.obs["agent_previous_action"], [[1, 0, 0], [0, 0, 0]])
    step = env.step((np.array([0, 1]), memory))
    np.testing.assert_array_equal(step.obs["agent_memory"], [[7.0], [0.0]])
    np.testing.assert_array_equal(step.obs["agent_first"], [False, True])
    step = env.step((np.array([2, 1]), memory))
    np.testing.assert_array_equal(step.obs["agent_memory"], memory)
    np.testing.assert_array_equal(step.obs["agent_previous_reward"], [[4.0], [5.0]])


def test_in_tensor_code_a_memory_is_cleared_where_an_episode_ends():
    env = RememberingEnv(CartPole(), 2, shows_previous=True)
    state, obs = reset_all(env, tf.fill([2, env.reset_uniforms], 0.5))
    assert obs["agent_first"].numpy().all() and not obs["agent_memory"].numpy().any()
    memory, ended = tf.constant([[1.0, 2.0], [3.0, 4.0]]), np.zeros(2, bool)
    while not ended.any():
        draws = tf.fill([2, uniforms_per_step(env)], 0.5)
        state, after = step_and_reset(env, state, (tf.constant([1, 1]), memory), draws)
        ended = after.ended.numpy()
        np.testing.assert_array_equal(after.next_obs["agent_memory"], memory)
        np.testing.assert_array_equal(after.obs["agent_first"], ended)
        kept = np.where(ended[:, np.newaxis], 0.0, memory)
        np.testing.assert_array_equal(after.obs["agent_memory"], kept)


@pytest.mark.parametrize(
    "obs",
    [
        {"a": tf.TensorSpec([1]), "agent_first": tf.TensorSpec([])},
        {"observation": tf.TensorSpec([2])},
    ],
)
def test_an_entry_with_a_name_that_a_memory_uses_is_refused(obs):
    with pytest.raises(ValueError, match=f"entry '{list(obs)[-1]}' .* Rename the entry"):
        remembering_spec(SPEC._replace(obs=obs), 5, False)


def test_other_entries_are_the_environments_own():
    obs = {name: tf.TensorSpec([1]) for name in ("memory", "first", "previous_action")}
    assert plain_spec(SPEC._replace(obs=obs)).obs == obs
    assert plain_spec(remembering_spec(SPEC._replace(obs=obs), 5, True)).obs == obs


class Stack(FrameStackObservation):
    """A stack of a user's own, as `--wrapper module:Stack` takes it."""

    def __init__(self, env):
        super().__init__(env, 2)


def make_stacked(wrapper):
    return wrapper(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize(
    ("wrapper", "processes"),
    [(Stack, False), (Stack, True), (lambda env: FrameStackObservation(env, 3), False)],
    ids=["own", "own, in processes", "Gymnasium's"],
)
def test_a_stack_of_gymnasiums_beside_a_memory_is_warned_of(wrapper, processes):
    host = make_host_env(functools.partial(make_stacked, wrapper), 2, async_envs=processes)
    with pytest.warns(UserWarning, match="CartPole-v1 stacks observations"):
        remembering(host, 5, False)
    host.close()
