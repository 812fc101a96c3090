"""The package `minatar` as an oracle: what it did, with which draws, and what ours does with them.

Its random source is replaced by one that records every draw. The draws become the uniform numbers
with which our environment takes the same decisions.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.environment.tensor.stepping import reset_all, step_and_reset

NAMES = {  # ours: the package's
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}


class Record(NamedTuple):
    """What happened in `T` env steps."""

    obs: np.ndarray  # [T, 10, 10, C] bool, after the reset where an episode ended
    next_obs: np.ndarray  # [T, 10, 10, C] bool, before it
    reward: np.ndarray  # [T]
    ended: np.ndarray  # [T] bool


class Recorder:
    """A NumPy RandomState that remembers what it drew."""

    def __init__(self, random):
        self.random, self.draws = random, []

    def __getattr__(self, name):
        def draw(*args, **kwargs):
            value = getattr(self.random, name)(*args, **kwargs)
            self.draws.append(np.array(value))  # the game changes arrays in place
            return value

        return draw

    def take(self):
        """The draws since the last call."""
        draws, self.draws = self.draws, []
        return draws


def middle(index, count):
    """A uniform that chooses number `index` of `count` equally likely ones."""
    return (index + 0.5) / count


def new_cars(draws):
    """Freeway's two random numbers for the speeds 1 to 5 and the directions of eight cars."""
    if not draws:
        return [0.5, 0.5]
    speeds, sides = draws
    kinds = (speeds - 1 + 5 * (sides >= 0.5)).reshape(2, 4)
    return middle(kinds @ 10 ** np.arange(4), 10_000)


def arrival(draws, free=None):
    """Side, kind and lane of Asterix's arrival; `free` lanes to choose from."""
    if not draws:
        return [0.5] * 3
    return [draws[0], draws[1], middle(draws[2], free) if len(draws) > 2 else 0.5]


def arrivals(draws, env):
    """Side, kind and row of Seaquest's enemy, side and row of its diver."""
    enemy, diver = [0.5] * 3, [0.5] * 2
    if env.e_spawn_timer == 0:
        side, kind, row, *draws = draws
        enemy = [side, kind, middle(row - 1, 8)]
    if env.d_spawn_timer == 0:
        side, row = draws
        diver = [side, middle(row - 1, 8)]
    return enemy + diver


def reset_draws(name, draws):
    """Uniforms of a reset."""
    if name == "Freeway":
        return new_cars(draws)
    return [middle(side, 2) for side in draws]  # of Breakout


def step_draws(name, draws, env):
    """Uniforms of a step, without the one of sticky actions."""
    if name == "Freeway":
        return new_cars(draws)
    if name == "Seaquest":
        return arrivals(draws, env)
    return (
        arrival(draws, sum(entity is None for entity in env.entities)) if name == "Asterix" else []
    )


def recording(name, steps, choose_action, seed=0, start=None):
    """What the package's game did, the actions [T], and the random numbers ours needs to repeat it.

    Args:
        name: Of the game, as ours.
        steps: Env steps.
        choose_action: Function of a NumPy generator and the observation [10, 10, C].
        seed: Of all draws.
        start: Attributes of the package's game that the first episode begins with.

    Returns:
        The record, actions [T], random numbers [R] of the first reset, and [T, S + R] of the steps.
    """
    from minatar import Environment

    theirs = Environment(NAMES[name])
    recorder = Recorder(np.random.RandomState(seed))
    theirs.random = theirs.env.random = recorder
    theirs.reset()
    vars(theirs.env).update(start or {})
    first = reset_draws(name, recorder.take())
    rng, rows, actions, fed = np.random.default_rng(seed), [], [], []
    for _ in range(steps):
        actions.append(choose_action(rng, theirs.state()))
        env = vars(theirs.env)
        before = SimpleNamespace(**env | {"entities": list(env.get("entities", ()))})
        reward, ended = theirs.act(actions[-1])
        sticky, *draws = recorder.take()
        step = [sticky, *step_draws(name, draws, before)]
        next_obs, restart = theirs.state(), np.full(len(first), 0.5)
        if ended:
            theirs.reset()
            restart = reset_draws(name, recorder.take())
        rows.append((theirs.state(), next_obs, reward, ended))
        fed.append([*step, *restart])
    record = Record(*(np.array(column) for column in zip(*rows, strict=True)))
    return record, np.array(actions), np.array(first), np.array(fed)


def repetition(env):
    """A function that plays actions [T] from a state with uniform [T, S + R]; compiled once."""

    @tf.function(jit_compile=True, autograph=False, reduce_retracing=False)
    def run(state, actions, fed):
        steps = actions.shape[0]
        shape = env.spec.obs.shape
        bools = [tf.TensorArray(tf.bool, steps, element_shape=shape) for _ in range(2)]
        ends = tf.TensorArray(tf.bool, steps, element_shape=[])
        rewards = tf.TensorArray(tf.float32, steps, element_shape=[])

        def body(index, state, *arrays):
            draws = fed[index][tf.newaxis]
            state, step = step_and_reset(env, state, actions[index][tf.newaxis], draws)
            values = step.obs, step.next_obs, step.reward, step.ended
            pairs = zip(arrays, values, strict=True)
            return index + 1, state, *(array.write(index, value[0]) for array, value in pairs)

        first = (0, state, *bools, rewards, ends)
        loop = tf.while_loop(lambda index, *_: index < steps, body, first)
        return [array.stack() for array in loop[2:]]

    def repeat(actions, first, fed, change=lambda state: state):
        draws = tf.constant(np.reshape(first, [1, env.reset_uniforms]), tf.float32)
        state, _ = reset_all(env, draws)
        state = state._replace(env=change(state.env))
        results = run(state, tf.constant(actions, tf.int32), tf.constant(fed, tf.float32))
        return Record(*(value.numpy() for value in results))

    return repeat


def first_difference(one, other):
    """Index of the first env step that differs, and what differs; None where all is equal."""
    for name, left, right in zip(Record._fields, one, other, strict=True):
        differs = (left != right).reshape(len(left), -1).any(axis=1)
        if differs.any():
            return int(differs.argmax()), name
    return None
