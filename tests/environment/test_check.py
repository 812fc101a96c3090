import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.spec import ACTION_MASK, Box, Discrete, MultiDiscrete
from tests.environment.tensor_worlds import Count, Counter, Keypad


def counter_with(**members):
    """A Counter with other members."""
    env = Counter()
    for name, value in members.items():
        setattr(env, name, value)
    return env


def spec(**parts):
    """A Counter whose spec has other parts."""
    return counter_with(spec=Counter().spec._replace(**parts))


def step(change):
    """A Counter whose steps are changed."""
    return counter_with(step=lambda *inputs: change(*Counter().step(*inputs)))


def reset(function):
    return counter_with(reset=function)


def observe(value):
    return counter_with(observe=lambda state: value)


BAD_MEMBERS = [
    (object(), TypeError, "no spec, reset_uniforms, step_uniforms, reset, observe"),
    (counter_with(step=3), TypeError, "step is 3, expected a method"),
    (counter_with(reset_uniforms=-1), TypeError, "reset_uniforms is -1"),
    (counter_with(step_uniforms=2.0), TypeError, "step_uniforms is 2.0"),
    (counter_with(spec="counter"), TypeError, "expected an EnvSpec"),
    (spec(obs=tf.TensorSpec([None, 2])), TypeError, "every axis is known"),
    (spec(action=Discrete(0)), TypeError, "count is 0"),
    (spec(action=3), TypeError, "expected a Discrete, MultiDiscrete or Box"),
    (spec(action=MultiDiscrete((2, 0))), TypeError, r"counts\[1\] is 0"),
    (spec(action=MultiDiscrete(())), TypeError, r"counts is \(\)"),
    (spec(action=Box([-1.0], (1.0,))), TypeError, r"low is \[-1.0\], expected a tuple"),
    (spec(action=Box((-1.0,), (1,))), TypeError, r"high\[0\] is 1, expected a float"),
    (spec(action=Box((np.nan,), (1.0,))), TypeError, r"low\[0\] is nan"),
    (spec(action=Box((-1.0, -1.0), (1.0,))), ValueError, "equally many"),
    (spec(action=Box((-1.0, 1.0), (1.0, 1.0))), ValueError, "low < high"),
    (spec(max_episode_steps=0), TypeError, "max_episode_steps is 0"),
    (reset(lambda uniform: tf.zeros([3, 2])), ValueError, "with 2 rows"),
    (reset(lambda uniform: 0.0), ValueError, r"holds 0.0 \(float\)"),
    (reset(lambda _: Counter().reset(tf.random.uniform([2, 1]))), ValueError, "different states"),
    (observe(tf.zeros([2, 2])), ValueError, r"shape \(2, 2\), expected .* \(2, 1, 2\)"),
    (observe(tf.zeros([2, 1, 2], tf.float64)), ValueError, "is a float64 tensor"),
    (observe(tf.fill([2, 1, 2], np.nan)), ValueError, "not finite"),
    (step(lambda state, pay, end: (state, pay, end, end)), ValueError, "a tuple of three"),
    (step(lambda state, pay, end: (state.grid, pay, end)), ValueError, "not the same nest"),
    (
        step(lambda state, pay, end: (Count(state.start, state.grid[:, :1]), pay, end)),
        ValueError,
        "has shapes and dtypes",
    ),
    (step(lambda state, pay, end: (state, pay[:, None], end)), ValueError, r"reward .*\(2, 1\)"),
    (step(lambda state, pay, end: (state, pay / 0.0, end)), ValueError, "reward .* not finite"),
    (
        step(lambda state, pay, end: (state, pay, tf.cast(end, tf.int32))),
        ValueError,
        "expected a bool",
    ),
]


@pytest.mark.parametrize(("env", "error", "message"), BAD_MEMBERS)
def test_check_environment_refuses_by_name_and_says_what_was_expected(env, error, message):
    with pytest.raises(error, match=message):
        check_environment(env)


def test_check_environment_accepts_a_good_one():
    check_environment(Counter())


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
    taken = env.taken[-1]  # before, it was traced
    np.testing.assert_array_equal(taken, tried)
    assert taken.dtype == (tf.float32 if isinstance(action, Box) else tf.int32)


def keypad_that_shows(change, *args, **kwargs):
    """A Keypad whose observations are changed."""
    env = Keypad(*args, **kwargs)
    observe = env.observe
    env.observe = lambda state: change(observe(state))
    return env


CODE = {"code": tf.TensorSpec([1], tf.float32)}
TWO, PARTS = Discrete(2), MultiDiscrete((2, 3))
FLOAT_MASK = {**CODE, ACTION_MASK: tf.TensorSpec([2], tf.float32)}
BAD_ENTRIES = [
    (Keypad(Box((0.0,), (1.0,)), mask=(1,)), "'action_mask'.* actions are a Box"),
    (Keypad(PARTS, mask=(1, 1, 1)), r"bool of shape \(3,\), expected bool of shape \(5,\)"),
    (Keypad(TWO, obs=FLOAT_MASK), r"float32 of shape \(2,\), expected bool of shape \(2,\)"),
    (Keypad(TWO, obs={ACTION_MASK: tf.TensorSpec([2], tf.bool)}), "at least one of them beside"),
    (Keypad(TWO, obs={}), r"has the entries \[\]"),
    (Keypad(TWO, obs={1: CODE["code"]}), r"has the entries \[1\]"),
    (Keypad(TWO, obs={"code": CODE}), r"'code'\] is \{.*expected a tf.TensorSpec"),
    (Keypad(TWO, obs={"code": tf.TensorSpec([None])}), r"'code'\] is .*every axis is known"),
    (Keypad(TWO, obs=CODE), r"a dict of \['image', 'code'\], expected a dict of \['code'\]"),
    (keypad_that_shows(lambda obs: obs["code"], TWO), "expected a dict of"),
    (
        keypad_that_shows(lambda obs: {**obs, "code": obs["code"][:, 0]}, TWO),
        r"'code'\] is a float32 tensor of shape \(2,\), expected .*\(2, 1\)",
    ),
    (
        keypad_that_shows(lambda obs: {**obs, "code": obs["code"] / 0.0}, TWO),
        r"'code'\] is not finite",
    ),
    (Keypad(TWO, obs=CODE["code"]), "a dict of .*expected a float32 tensor"),
    (Keypad(Discrete(3), mask=(0, 0, 0)), "allows no action in row 0"),
    (Keypad(PARTS, mask=(1, 1, 0, 0, 0)), "no action of component 1 in row 0"),
    (  # only after the step, which brings environment 0 to code 2
        keypad_that_shows(
            lambda obs: {**obs, ACTION_MASK: tf.tile(obs["code"] < 2.0, [1, 3])},
            Discrete(3),
            mask=(1, 1, 1),
        ),
        "allows no action in row 0",
    ),
]


@pytest.mark.parametrize(("env", "message"), BAD_ENTRIES)
def test_check_environment_refuses_wrong_entries_and_masks(env, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_environment(env)


class Undecided(Counter):
    """A Counter with a Python `if` on a tensor in a method of choice."""

    def __init__(self, method):
        super().__init__()
        right = getattr(super(), method)

        def wrong(*inputs):
            result = right(*inputs)
            if tf.reduce_any(tf.nest.flatten(result)[0] > 0.5):
                return result
            return result

        setattr(self, method, wrong)


@pytest.mark.parametrize("method", ["reset", "observe", "step"])
def test_a_python_if_on_a_tensor_names_the_method_and_what_to_write(method):
    with pytest.raises(ValueError, match=rf"Undecided\.{method}\(\) .*line \d+.*tf\.where"):
        check_environment(Undecided(method))


def test_a_tensor_that_is_handed_to_numpy_names_the_method():
    with pytest.raises(ValueError, match=r"Counter\.observe\(\) .*NumPy"):
        check_environment(counter_with(observe=lambda state: np.sin(state)))
