from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.spec import ACTION_MASK, Box, Discrete, EnvSpec, MultiDiscrete
from kytolly.environment.tensor.stepping import (
    DeviceState,
    check_environment,
    reset_all,
    step_and_reset,
    uniforms_per_step,
)


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
        replaced(spec=SPEC._replace(action=3)),
        TypeError,
        r"spec.action is 3 \(int\), expected a Discrete, MultiDiscrete or Box",
    ),
    (
        replaced(spec=SPEC._replace(action=MultiDiscrete((2, 0)))),
        TypeError,
        r"counts\[1\] is 0, .* at least 1",
    ),
    (
        replaced(spec=SPEC._replace(action=MultiDiscrete(()))),
        TypeError,
        r"counts is \(\), expected a tuple: one integer for every kind",
    ),
    (
        replaced(spec=SPEC._replace(action=Box([-1.0], (1.0,)))),
        TypeError,
        r"action.low is \[-1.0\], expected a tuple",
    ),
    (
        replaced(spec=SPEC._replace(action=Box((-1.0,), (1,)))),
        TypeError,
        r"high\[0\] is 1, expected a float",
    ),
    (
        replaced(spec=SPEC._replace(action=Box((np.nan,), (1.0,)))),
        TypeError,
        r"low\[0\] is nan, expected a float",
    ),
    (
        replaced(spec=SPEC._replace(action=Box((-1.0, -1.0), (1.0,)))),
        ValueError,
        "2 lower and 1 upper bounds, expected as many",
    ),
    (
        replaced(spec=SPEC._replace(action=Box((-1.0, 1.0), (1.0, 1.0)))),
        ValueError,
        "number 1 from 1.0 to 1.0, expected low < high",
    ),
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


class Lock(NamedTuple):
    code: tf.Tensor
    seen: tf.Tensor


class Keypad:
    """An environment of any kind of action and observation, for what the checks make of them.

    The code counts the steps from where the reset draw puts it; the reward is the sum of the
    action's numbers; the episode ends above code 2. `taken` collects the actions.
    """

    reset_uniforms, step_uniforms = 1, 0

    def __init__(self, action, mask=None, obs=None):
        entries = {"code": tf.TensorSpec([1], tf.float32), "image": tf.TensorSpec([2, 2], tf.uint8)}
        if mask is not None:
            entries[ACTION_MASK] = tf.TensorSpec([len(mask)], tf.bool)
        self.spec = EnvSpec("keypad", entries if obs is None else obs, action, 4)
        self.mask, self.taken = mask, []

    def reset(self, uniforms):
        code = tf.round(uniforms)
        return Lock(code, tf.zeros([*code.shape[:1], 2, 2], tf.uint8))

    def observe(self, state):
        obs = {"image": state.seen, "code": state.code}
        if self.mask is not None:
            obs[ACTION_MASK] = tf.tile(tf.constant([self.mask]) > 0, [state.code.shape[0], 1])
        return obs

    def step(self, state, action, uniforms):
        self.taken.append(action)
        reward = tf.cast(tf.reshape(action, [action.shape[0], -1]), tf.float32)
        code = state.code + 1.0
        return Lock(code, state.seen + 1), tf.reduce_sum(reward, axis=-1), code[:, 0] > 2.0


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_every_entry_of_a_dict_is_reset_where_an_episode_ended_and_kept_in_next_obs(compiled):
    env = Keypad(Box((-1.0, -2.0), (1.0, 2.0)))
    state, obs = reset_all(env, tf.constant([[0.0], [0.9]]))
    np.testing.assert_array_equal(obs["code"], [[0], [1]])
    step = lambda s, a, u: step_and_reset(env, s, a, u)  # noqa: E731
    step = tf.function(step, jit_compile=True, autograph=False) if compiled else step
    for _ in range(2):
        state, after, end = step(
            state, tf.constant([[0.5, 1.0], [-0.5, 2.0]]), tf.constant([[0.0], [0.1]])
        )
    # copy 1 went from code 1 over 2 to 3 and ended; its new episode begins at code 0.
    np.testing.assert_array_equal(end.ended, [False, True])
    np.testing.assert_array_equal(after.next_obs["code"], [[2], [3]])
    np.testing.assert_array_equal(after.obs["code"], [[2], [0]])
    np.testing.assert_array_equal(after.next_obs["image"], np.full((2, 2, 2), 2))
    np.testing.assert_array_equal(after.obs["image"][:, 1, 1], [2, 0])
    np.testing.assert_array_equal(after.reward, [1.5, 1.5])
    assert after.obs["image"].dtype == tf.uint8 and set(after.obs) == set(env.spec.obs)


def test_dict_observations_travel_through_a_compiled_loop():
    env = Keypad(MultiDiscrete((2, 3)), mask=(1, 1, 1, 1, 1))

    @tf.function(jit_compile=True, autograph=False)
    def run(uniforms):
        def body(index, state, obs, total):
            state, after, _ = step_and_reset(env, state, tf.constant([[1, 2], [0, 1]]), uniforms)
            return index + 1, state, after.obs, total + after.reward

        state, obs = reset_all(env, uniforms)
        start = (0, state, obs, tf.zeros([2]))
        return tf.while_loop(lambda index, *_: index < 7, body, start)

    _, state, obs, total = run(tf.constant([[0.0], [1.0]]))
    np.testing.assert_array_equal(total, [21, 7])
    # episodes of 3 and of 2 steps: seven steps leave 1 and 1 behind them, from codes 0 and 1
    np.testing.assert_array_equal(obs["code"], [[1], [2]])
    np.testing.assert_array_equal(state.elapsed, [1, 1])


@pytest.mark.parametrize(
    ("action", "mask", "tried"),
    [
        (Discrete(4), None, [0, 3]),
        (Discrete(4), (0, 1, 1, 0), [1, 2]),
        (MultiDiscrete((2, 3)), None, [[0, 0], [1, 2]]),
        (MultiDiscrete((2, 3)), (0, 1, 1, 1, 0), [[1, 0], [1, 1]]),
        (Box((-1.0, -2.0), (1.0, 5.0)), None, [[-1, -2], [1, 5]]),
        (Box((-np.inf, 50.0), (np.inf, np.inf)), None, [[-10, 50], [10, 60]]),
        (Box((-np.inf,), (-50.0,)), None, [[-60], [-50]]),
    ],
)
def test_check_environment_tries_the_extreme_actions_that_are_allowed(action, mask, tried):
    env = Keypad(action, mask)
    check_environment(env)
    (taken,) = env.taken
    np.testing.assert_array_equal(taken, tried)
    assert taken.dtype == (tf.float32 if isinstance(action, Box) else tf.int32)


def observing(change, *args, **kwargs):
    """A Keypad whose observations are changed."""
    env = Keypad(*args, **kwargs)
    observe = env.observe
    env.observe = lambda state: change(observe(state))
    return env


CODE = {"code": tf.TensorSpec([1], tf.float32)}
REFUSED_ENTRIES = [
    (
        Keypad(Box((0.0,), (1.0,)), mask=(1,)),
        r"spec.obs\['action_mask'\] .* the actions are a Box, expected Discrete or MultiDiscrete",
    ),
    (
        Keypad(MultiDiscrete((2, 3)), mask=(1, 1, 1)),
        r"'action_mask'\] is bool of shape \(3,\), expected bool of shape \(5,\)",
    ),
    (
        Keypad(Discrete(2), obs={**CODE, ACTION_MASK: tf.TensorSpec([2], tf.float32)}),
        r"'action_mask'\] is float32 of shape \(2,\), expected bool of shape \(2,\)",
    ),
    (
        Keypad(Discrete(2), obs={ACTION_MASK: tf.TensorSpec([2], tf.bool)}),
        r"has the entries \['action_mask'\], expected names .* among them one that is observed",
    ),
    (Keypad(Discrete(2), obs={}), r"has the entries \[\], expected names"),
    (Keypad(Discrete(2), obs={1: CODE["code"]}), r"has the entries \[1\], expected names"),
    (
        Keypad(Discrete(2), obs={"code": CODE}),
        r"spec.obs\['code'\] is \{.*expected a tf.TensorSpec",
    ),
    (
        Keypad(Discrete(2), obs={"code": tf.TensorSpec([None])}),
        r"spec.obs\['code'\] is .*every axis is known",
    ),
    (
        Keypad(Discrete(2), obs=CODE),
        r"observe\(\) is a dict of \['image', 'code'\], expected a dict of \['code'\]",
    ),
    (
        observing(lambda obs: obs["code"], Discrete(2)),
        r"observe\(\) is a float32 tensor of shape \(2, 1\), expected a dict of",
    ),
    (
        observing(lambda obs: {**obs, "code": obs["code"][:, 0]}, Discrete(2)),
        r"observe\(\)\['code'\] is a float32 tensor of shape \(2,\), expected .*\(2, 1\)",
    ),
    (
        observing(lambda obs: {**obs, "code": obs["code"] / 0.0}, Discrete(2)),
        r"observe\(\)\['code'\] is not finite",
    ),
    (
        Keypad(Discrete(2), obs=CODE["code"]),
        r"observe\(\) is a dict of .*expected a float32 tensor of shape \(2, 1\)",
    ),
    (
        Keypad(Discrete(3), mask=(0, 0, 0)),
        r"'action_mask'\] allows no action in row 0: \[False, False, False\], expected at least",
    ),
    (
        Keypad(MultiDiscrete((2, 3)), mask=(1, 1, 0, 0, 0)),
        "allows no action of kind 1 in row 0",
    ),
    (  # only after the step, which brings copy 0 to code 2
        observing(
            lambda obs: {**obs, ACTION_MASK: tf.tile(obs["code"] < 2.0, [1, 3])},
            Discrete(3),
            mask=(1, 1, 1),
        ),
        "allows no action in row 0",
    ),
]


@pytest.mark.parametrize(("env", "message"), REFUSED_ENTRIES)
def test_check_environment_refuses_wrong_entries_and_masks(env, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_environment(env)
