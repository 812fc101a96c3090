"""When an agent makes its first update, and how many it makes in each iteration."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.loop.device import DeviceLoop
from kytolly.loop.host import warm_up_ends_within
from kytolly.loop.learn import LoopMetrics, learn
from kytolly.policy.batch import Rollout
from tests.helpers.cases import learning
from tests.helpers.q_learning_probes import Ring
from tests.loop.configs import small_config


def updates_of_iterations(count, **settings):
    """Updates of each of `count` iterations, on the host's way to learn and in the device loop."""
    cfg = small_config(**settings)
    by_learn, loop = make_agent(cfg, Ring().spec), None
    shape = [cfg.rollout_steps, cfg.num_envs]
    obs = tf.ones([*shape, *Ring().spec.obs.shape])
    number = tf.ones(shape)
    rollout = Rollout(obs, tf.zeros(shape, tf.int32), number, number, obs, number < 0.0)

    def learn_once(random_bits):
        enabled = warm_up_ends_within(by_learn, cfg.env_steps_per_iteration)
        return learn(by_learn, rollout, random_bits, LoopMetrics.zeros(by_learn), enabled).updates

    program, draw = tf.function(learn_once, autograph=False), by_learn.random_stream.random_bits
    found = [int(program(draw(by_learn.memory.num_random_words))) for _ in range(count)]
    loop = DeviceLoop(make_agent(small_config(xla=False, **settings), Ring().spec), Ring())
    assert [int(loop.run(1).updates) for _ in range(count)] == found
    assert int(loop.agent.env_steps) == int(by_learn.env_steps) == count * np.prod(shape)
    return found


def test_learning_waits_until_an_n_step_window_is_complete():
    """The window of 5 steps of 64 environments is over with 320 rows, long after warm-up."""
    settings = {"num_envs": 64, "n_step": 5, "train_interval_env_steps": 64}
    found = updates_of_iterations(7, **settings, replay_capacity=2_000)
    assert found == [0, 0, 0, 0, 2, 2, 2]


def test_learning_begins_after_warm_up_where_windows_are_complete_by_then():
    assert updates_of_iterations(7, n_step=3) == [0, 0, 0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    "num_envs, updates, interval",
    # several iterations an update, several updates, whole
    [learning((3, 1, 4)), (10, 1, 4), learning((16, 3, 8))],
)
def test_updates_per_env_step_are_as_configured_for_any_number_of_environments(
    num_envs, updates, interval
):
    settings = {"train_interval_env_steps": interval, "updates_per_interval": updates}
    settings |= {"warmup_env_steps": 16, "num_envs": num_envs, "n_step": 1}
    found = updates_of_iterations(30, **settings)
    cfg = small_config(**settings)
    rows = cfg.env_steps_per_iteration
    wanted = [
        (i + 1) * rows * updates // interval - i * rows * updates // interval for i in range(30)
    ]
    first = -(-16 // rows) - 1  # iteration
    assert found == [0] * first + wanted[first:]
    assert abs(sum(found) - (30 - first) * rows * updates / interval) < 1
    assert max(found) <= cfg.updates_per_iteration
