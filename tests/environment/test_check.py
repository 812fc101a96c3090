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


def counter_step(change):
    return lambda state, action, uniform: change(*Counter().step(state, action, uniform))


SPEC = Counter().spec
BAD_MEMBERS = [
    (object(), TypeError, "object has no spec, reset_uniforms, step_uniforms, reset, observe"),
    (counter_with(step=3), TypeError, "Counter.step is 3, expected a method"),
    (counter_with(reset_uniforms=-1), TypeError, "reset_uniforms is -1, expected an integer of at"),
    (counter_with(step_uniforms=2.0), TypeError, "step_uniforms is 2.0, expected an integer"),
    (counter_with(spec="counter"), TypeError, "spec is 'counter' .str., expected an EnvSpec"),
    (
        counter_with(spec=SPEC._replace(obs=tf.TensorSpec([None, 2]))),
        TypeError,
        "spec.obs is .*every axis is known",
    ),
    (counter_with(spec=SPEC._replace(action=Discrete(0))), TypeError, "count is 0, .* at least 1"),
    (
        counter_with(spec=SPEC._replace(action=3)),
        TypeError,
        r"spec.action is 3 \(int\), expected a Discrete, MultiDiscrete or Box",
    ),
    (
        counter_with(spec=SPEC._replace(action=MultiDiscrete((2, 0)))),
        TypeError,
        r"counts\[1\] is 0, .* at least 1",
    ),
    (
        counter_with(spec=SPEC._replace(action=MultiDiscrete(()))),
        TypeError,
        r"counts is \(\), expected a tuple: one integer for every component",
    ),
    (
        counter_with(spec=SPEC._replace(action=Box([-1.0], (1.0,)))),
        TypeError,
        r"action.low is \[-1.0\], expected a tuple",
    ),
    (
        counter_with(spec=SPEC._replace(action=Box((-1.0,), (1,)))),
        TypeError,
        r"high\[0\] is 1, expected a float",
    ),
    (
        counter_with(spec=SPEC._replace(action=Box((np.nan,), (1.0,)))),
        TypeError,
        r"low\[0\] is nan, expected a float",
    ),
    (
        counter_with(spec=SPEC._replace(action=Box((-1.0, -1.0), (1.0,)))),
        ValueError,
        "2 lower and 1 upper bounds, expected equally many",
    ),
    (
        counter_with(spec=SPEC._replace(action=Box((-1.0, 1.0), (1.0, 1.0)))),
        ValueError,
        "number 1 from 1.0 to 1.0, expected low < high",
    ),
    (
        counter_with(spec=SPEC._replace(max_episode_steps=0)),
        TypeError,
        "max_episode_steps is 0, expected",
    ),
    (
        counter_with(reset=lambda uniform: tf.zeros([3, 2])),
        ValueError,
        r"reset\(\) holds a float32 tensor of shape \(3, 2\).*with 2 rows",
    ),
    (counter_with(reset=lambda uniform: 0.0), ValueError, r"reset\(\) holds 0.0 \(float\)"),
    (
        counter_with(reset=lambda uniform: Counter().reset(tf.random.uniform([2, 1]))),
        ValueError,
        "two different states for the same random numbers",
    ),
    (
        counter_with(observe=lambda state: tf.zeros([2, 2])),
        ValueError,
        r"observe\(\) is a float32 tensor of shape \(2, 2\), expected a float32 tensor of shape "
        r"\(2, 1, 2\)",
    ),
    (
        counter_with(observe=lambda state: tf.zeros([2, 1, 2], tf.float64)),
        ValueError,
        "is a float64 tensor .* expected a float32",
    ),
    (
        counter_with(observe=lambda state: tf.fill([2, 1, 2], np.nan)),
        ValueError,
        r"observe\(\) is not finite",
    ),
    (
        counter_with(step=counter_step(lambda state, reward, end: (state, reward, end, end))),
        ValueError,
        "expected a tuple of three",
    ),
    (
        counter_with(step=counter_step(lambda state, reward, end: (state.grid, reward, end))),
        ValueError,
        "not the same nest as that of reset",
    ),
    (
        counter_with(
            step=counter_step(
                lambda state, reward, end: (Count(state.start, state.grid[:, :1]), reward, end)
            )
        ),
        ValueError,
        r"step\(\) has shapes and dtypes .*expected those of reset",
    ),
    (
        counter_with(step=counter_step(lambda state, reward, end: (state, reward[:, None], end))),
        ValueError,
        r"reward of Counter.step\(\) is a float32 tensor of shape \(2, 1\)",
    ),
    (
        counter_with(step=counter_step(lambda state, reward, end: (state, reward / 0.0, end))),
        ValueError,
        r"reward of Counter.step\(\) is not finite",
    ),
    (
        counter_with(
            step=counter_step(lambda state, reward, end: (state, reward, tf.cast(end, tf.int32)))
        ),
        ValueError,
        r"terminated of Counter.step\(\) is a int32 tensor.*expected a bool",
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
BAD_ENTRIES = [
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
        r"has the entries \['action_mask'\], expected names .* at least one of them beside",
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
        keypad_that_shows(lambda obs: obs["code"], Discrete(2)),
        r"observe\(\) is a float32 tensor of shape \(2, 1\), expected a dict of",
    ),
    (
        keypad_that_shows(lambda obs: {**obs, "code": obs["code"][:, 0]}, Discrete(2)),
        r"observe\(\)\['code'\] is a float32 tensor of shape \(2,\), expected .*\(2, 1\)",
    ),
    (
        keypad_that_shows(lambda obs: {**obs, "code": obs["code"] / 0.0}, Discrete(2)),
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
        "allows no action of component 1 in row 0",
    ),
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
