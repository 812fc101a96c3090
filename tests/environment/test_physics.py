"""CartPole, Acrobot, both MountainCars and Pendulum against Gymnasium's own, state by state.

Ours compute in float32, Gymnasium in float64. One step from the same state may differ by
`ONE_STEP` (absolute and relative): a few units in the last place of float32 after the handful of
operations of a step. Acrobot needs more, because the recorded states include joints turning at 28
rad/s, nearly a revolution per step, where its Runge-Kutta step magnifies rounding; half of its rows
agree to 2e-7. A run without correction drifts further, by `FREE_RUN`.

Actions of a Box are drawn from 1.5 times its range, because the two must clip alike.
"""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.registry import tensor_environment
from kytolly.environment.spec import Box, Discrete
from kytolly.environment.tensor.acrobot import AcrobotState
from kytolly.environment.tensor.stepping import reset_all, step_and_reset

ONE_STEP = {
    "CartPole-v1": 1e-6,
    "Acrobot-v1": 1e-4,
    "MountainCar-v0": 5e-7,
    "MountainCarContinuous-v0": 5e-7,
    "Pendulum-v1": 1e-6,
}
FREE_RUN = {
    "CartPole-v1": 2e-5,
    "Acrobot-v1": 1e-3,
    "MountainCar-v0": 2e-5,
    "MountainCarContinuous-v0": 1e-6,
    "Pendulum-v1": 1e-4,
}
# Bounds of the states that episodes of the comparison start from: the whole of what can occur.
START = {
    "CartPole-v1": [2.4, 3.0, 0.2, 3.0],
    "Acrobot-v1": [np.pi, np.pi, 4 * np.pi, 9 * np.pi],
    "MountainCar-v0": [0.9, 0.07],
    "MountainCarContinuous-v0": [0.9, 0.07],
    "Pendulum-v1": [np.pi, 8.0],
}
CENTER = {"MountainCar-v0": [-0.3, 0.0], "MountainCarContinuous-v0": [-0.3, 0.0]}
ANGLES = {"Acrobot-v1": slice(0, 2), "Pendulum-v1": slice(0, 1)}  # where pi and -pi are one
STEPS = 10_000
NAMES = list(ONE_STEP)


def with_wrapped_angles(name, rows):
    """The same rows [N, S], angles within [-pi, pi)."""
    rows = np.array(rows)
    angles = ANGLES.get(name, slice(0))
    rows[:, angles] = np.mod(rows[:, angles] + np.pi, 2 * np.pi) - np.pi
    return rows


def as_state(name, rows):
    rows = tf.constant(with_wrapped_angles(name, rows), tf.float32)
    return AcrobotState(*tf.unstack(rows, axis=-1)) if name == "Acrobot-v1" else rows


def as_rows(state):
    return np.stack(state, -1) if isinstance(state, AcrobotState) else np.asarray(state)


def termination_margin(name, state):
    """How far a float64 state [N, S] lies from the border of termination, at least."""
    if name == "CartPole-v1":
        borders = [np.abs(state[:, 0]) - 2.4, np.abs(state[:, 2]) - np.radians(12)]
    elif name == "Acrobot-v1":
        borders = [-np.cos(state[:, 0]) - np.cos(state[:, 0] + state[:, 1]) - 1.0]
    elif name == "Pendulum-v1":
        borders = [np.full(len(state), np.inf)]
    else:
        borders = [state[:, 0] - (0.5 if name == "MountainCar-v0" else 0.45)]
    return np.min(np.abs(borders), axis=0)


def random_action(env, rng):
    """One action for Gymnasium; numbers are float64, so that it computes in float64."""
    if isinstance(env.spec.action, Discrete):
        return int(rng.integers(env.spec.action.count))
    low, high = 1.5 * np.array(env.spec.action.low), 1.5 * np.array(env.spec.action.high)
    return rng.uniform(low, high).astype(np.float32).astype(np.float64)


def as_actions(env, actions):
    dtype = tf.int32 if isinstance(env.spec.action, Discrete) else tf.float32
    return tf.constant(np.array(actions), dtype)


@pytest.fixture(scope="module")
def records():
    """`STEPS` steps of Gymnasium's environment: state, action, next state, obs, reward, end."""

    def record(name, rng):
        env = gymnasium.make(name).unwrapped
        env.reset(seed=0)
        rows, age = [], None
        for _ in range(STEPS):
            if age is None:
                bound = np.array(START[name])
                env.state = np.array(CENTER.get(name, 0.0)) + rng.uniform(-bound, bound)
                env.steps_beyond_terminated, age = None, 0
            before, action = np.array(env.state), random_action(tensor_environment(name), rng)
            obs, reward, terminated, *_ = env.step(action)
            rows.append((before, action, np.array(env.state), obs, reward, terminated))
            age = None if terminated or age == 4 else age + 1
        return [np.array(column) for column in zip(*rows, strict=True)]

    return {name: record(name, np.random.default_rng(7)) for name in NAMES}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize("name", NAMES)
def test_one_step_from_every_recorded_state_agrees_with_gymnasium(name, compiled, records):
    env = tensor_environment(name)
    before, action, after, obs, reward, terminated = records[name]

    def step(state, action):
        state, reward, terminated = env.step(state, action, tf.zeros([STEPS, 0]))
        return state, env.observe(state), reward, terminated

    step = tf.function(step, jit_compile=True, autograph=False) if compiled else step
    state, our_obs, our_reward, our_end = step(as_state(name, before), as_actions(env, action))
    tolerance = ONE_STEP[name]
    clear = termination_margin(name, after) > 10 * tolerance

    difference = with_wrapped_angles(name, as_rows(state) - after)
    assert np.all(np.abs(difference) <= tolerance * np.maximum(1.0, np.abs(after)))
    np.testing.assert_allclose(our_obs, obs, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(our_end.numpy()[clear], terminated[clear])
    inexact = tolerance if isinstance(env.spec.action, Box) else 0.0  # others are paid 0, 1, -1
    np.testing.assert_allclose(our_reward.numpy()[clear], reward[clear], rtol=inexact, atol=inexact)
    assert clear.mean() > 0.995
    assert terminated[clear].sum() >= (0 if name == "Pendulum-v1" else 100)
    assert (~terminated[clear]).sum() > 3_000


@pytest.mark.parametrize("name", NAMES)
def test_runs_without_correction_stay_with_gymnasium(name):
    env, rng, seen = tensor_environment(name), np.random.default_rng(3), 0
    references = [gymnasium.make(name).unwrapped for _ in range(40)]
    for seed, reference in enumerate(references):
        reference.reset(seed=seed)
    state, running = as_state(name, [r.state for r in references]), list(range(40))
    step = tf.function(
        lambda state, action: env.step(state, action, tf.zeros([40, 0])), autograph=False
    )
    for _ in range(60):
        actions = [random_action(env, rng) for _ in references]
        state, _, our_end = step(state, as_actions(env, actions))
        theirs = [references[row].step(actions[row]) for row in running]
        np.testing.assert_allclose(
            env.observe(state).numpy()[running],
            [obs for obs, *_ in theirs],
            rtol=FREE_RUN[name],
            atol=FREE_RUN[name],
        )
        terminated = [end for _, _, end, *_ in theirs]
        np.testing.assert_array_equal(our_end.numpy()[running], terminated)
        seen += len(running)
        running = [row for row, end in zip(running, terminated, strict=True) if not end]
        if not running:
            break
    assert seen > 700


@pytest.mark.parametrize("name", NAMES)
def test_spec_is_gymnasiums(name):
    spec, theirs = tensor_environment(name).spec, gymnasium.make(name)
    assert (spec.name, spec.max_episode_steps, spec.reward_threshold) == (
        theirs.spec.id,
        theirs.spec.max_episode_steps,
        theirs.spec.reward_threshold,
    )
    assert tuple(spec.obs.shape) == theirs.observation_space.shape
    if isinstance(spec.action, Discrete):
        assert spec.action.count == theirs.action_space.n
    else:
        assert spec.action == Box(tuple(theirs.action_space.low), tuple(theirs.action_space.high))
    check_environment(tensor_environment(name))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("CartPole-v1", [-0.05] * 4, [0.05] * 4),
        ("Acrobot-v1", [-0.1] * 4, [0.1] * 4),
        ("MountainCar-v0", [-0.6, 0.0], [-0.4, 0.0]),
        ("MountainCarContinuous-v0", [-0.6, 0.0], [-0.4, 0.0]),
        ("Pendulum-v1", [-np.pi, -1.0], [np.pi, 1.0]),
    ],
)
def test_reset_spans_the_range_of_gymnasiums(name, low, high):
    env, reference = tensor_environment(name), gymnasium.make(name).unwrapped
    draws = tf.stack([tf.fill([env.reset_uniforms], value) for value in (0.0, 0.5, 1.0)])
    ends = as_rows(env.reset(draws))
    middle = (np.array(low) + np.array(high)) / 2
    np.testing.assert_allclose(ends, [low, middle, high], rtol=1e-7, atol=1e-7)

    theirs = [(reference.reset(seed=seed), np.array(reference.state))[1] for seed in range(500)]
    rng = np.random.default_rng(0)
    ours = as_rows(env.reset(tf.constant(rng.random((500, env.reset_uniforms)), tf.float32)))
    width = np.array(high) - np.array(low)
    for sample in (np.array(theirs), ours):
        assert np.all(sample.min(0) >= low - 1e-7 * np.ones(len(low)))
        assert np.all(sample.max(0) <= high + 1e-7 * np.ones(len(high)))
        assert np.all(np.ptp(sample, axis=0) >= 0.97 * width)
        # a uniform draw's standard deviation is its width / sqrt(12)
        np.testing.assert_allclose(sample.std(0), width / np.sqrt(12), rtol=0.08)


def test_draws_of_different_numbers_of_a_state_are_independent():
    draws = tf.constant([[0.0, 0.25, 0.75, 1.0]])
    np.testing.assert_allclose(
        tensor_environment("CartPole-v1").reset(draws), [[-0.05, -0.025, 0.025, 0.05]], atol=1e-8
    )
    np.testing.assert_allclose(
        as_rows(tensor_environment("Acrobot-v1").reset(draws)),
        [[-0.1, -0.05, 0.05, 0.1]],
        atol=1e-8,
    )


def test_the_left_wall_takes_the_speed_and_the_goal_ends_the_episode():
    env = tensor_environment("MountainCar-v0")
    state = tf.constant([[-1.19, -0.05], [0.46, 0.06]])
    after, reward, terminated = env.step(state, tf.constant([0, 2]), tf.zeros([2, 0]))
    # row 0 is stopped at -1.2; row 1: 0.06 + 0.001 - 0.0025 cos(1.38) = 0.0605257, 0.46 + that.
    np.testing.assert_allclose(after, [[-1.2, 0.0], [0.5205257, 0.0605257]], atol=1e-6)
    np.testing.assert_array_equal(terminated, [False, True])
    np.testing.assert_array_equal(reward, [-1.0, -1.0])


def test_a_continuous_push_is_clipped_but_paid_in_full_and_the_goal_pays_100():
    env = tensor_environment("MountainCarContinuous-v0")
    state = tf.constant([[-0.5, 0.0], [0.4, 0.06], [-1.19, -0.05]])
    action = tf.constant([[2.0], [-0.5], [0.0]])
    after, reward, terminated = env.step(state, action, tf.zeros([3, 0]))
    # row 0: 0.0015 - 0.0025 cos(-1.5) = 0.00132316 (unclipped 0.0028), and pays 0.1 * 2^2.
    # row 1: 0.06 - 0.00075 - 0.0025 cos(1.2) = 0.0583441 beyond 0.45; 100 - 0.1 * 0.25.
    expected = [[-0.4986768, 0.0013232], [0.4583441, 0.0583441], [-1.2, 0.0]]
    np.testing.assert_allclose(after, expected, atol=1e-6)
    np.testing.assert_allclose(reward, [-0.4, 99.975, 0.0], rtol=1e-6)
    np.testing.assert_array_equal(terminated, [False, True, False])


def test_a_pendulum_is_paid_for_where_it_was_and_turns_within_one_turn():
    env = tensor_environment("Pendulum-v1")
    state = tf.constant([[np.pi / 2, 0.0], [3.1, 7.9]], tf.float32)
    after, reward, terminated = env.step(state, tf.constant([[3.0], [2.0]]), tf.zeros([2, 0]))
    # row 0: torque clipped to 2; (15 + 3 * 2) * 0.05 = 1.05, then pi/2 + 1.05 * 0.05 = 1.6232963;
    # -(pi^2 / 4 + 0.001 * 4) = -2.4714011, of the angle before the step.
    # row 1: 7.9 + (15 sin 3.1 + 6) * 0.05 > 8; 3.1 + 0.4 - 2 pi; -(9.61 + 6.241 + 0.004).
    np.testing.assert_allclose(after, [[1.6232963, 1.05], [-2.7831853, 8.0]], rtol=1e-6)
    np.testing.assert_allclose(reward, [-2.4714011, -15.855], rtol=1e-6)
    np.testing.assert_array_equal(terminated, [False, False])


def test_a_cartpole_that_stands_still_falls_after_the_hand_computed_push():
    env = tensor_environment("CartPole-v1")
    after, reward, terminated = env.step(tf.zeros([1, 4]), tf.constant([1]), tf.zeros([1, 0]))
    # thrust 10/1.1; angle: -thrust / (0.5 (4/3 - 0.1/1.1)) = -14.634146; cart: thrust
    # + 0.05/1.1 * 14.634146 = 9.756098; both times 0.02 s. Positions lag by a step (Euler).
    np.testing.assert_allclose(after, [[0.0, 0.19512195, 0.0, -0.29268293]], rtol=1e-6)
    np.testing.assert_array_equal(reward, [1.0])
    np.testing.assert_array_equal(terminated, [False])


def test_time_limit_of_the_real_episode_length():
    env = tensor_environment("MountainCar-v0")
    state, _ = reset_all(env, tf.constant([[0.5]]))
    step = tf.function(
        lambda state: step_and_reset(env, state, tf.constant([1]), tf.constant([[0.5]])),
        jit_compile=True,
    )
    for _ in range(199):
        state, time_step = step(state)
        assert not time_step.ended.numpy().any()
    state, time_step = step(state)
    assert time_step.truncated.numpy().all() and not time_step.terminated.numpy().any()
    assert time_step.episode_return.numpy() == -200.0
    assert time_step.episode_length.numpy() == 200
