"""The profile of the loop: its arithmetic, and parts timed apart."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.callback.base import TrainState
from kytolly.config.ppo import PPOConfig
from kytolly.loop.device import DeviceLoop
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate import profile as reformulation_profile
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.profile import (
    LoopKeeper,
    PartSeconds,
    Transfers,
    WithoutNetwork,
    measure_transfers,
    part_seconds,
    profile_loop,
    shared_seconds,
)
from kytolly.search.reformulate.report import loop_lines
from kytolly.search.reformulate.table import make_table
from tests.search.reformulate.made_queries import RULES, Scores, make_documents, make_query

PARTS = {"forward": 1.0, "search and reward": 2.0, "update": 5.0}


@pytest.fixture(scope="module")
def loop():
    index = Scores(documents=120, terms=12)
    queries = [make_query(n, index, candidates=5) for n in range(4)]
    rules = RULES._replace(pool_documents=128)
    env = DeviceQueries(make_table(queries, index, make_documents(120), rules), rules)
    cfg = PPOConfig(num_envs=4, rollout_steps=4, num_minibatches=2, epochs=3, xla=False)
    network = scorer(env)
    return DeviceLoop(make_agent(cfg, env.spec, network), env)


def scorer(env):
    network = CandidateScorer((8,))
    shapes = {name: (None, *spec.shape) for name, spec in env.spec.obs.items()}
    network.build({name: shapes[name] for name in ("candidates", "state")})
    return network


def test_parts_add_up_to_the_busy_time_of_the_loop():
    # Of 20 s in the program 4 s move metrics; a quarter of the 16 s left is idle, 12 s remain for
    # parts that took 8 s apart: each counts 1.5 times.
    seconds, scale = shared_seconds(20.0, 0.75, Transfers(1_000, 3.0, 4.0), PARTS)
    assert scale == 1.5
    assert seconds == {
        "forward": 1.5,
        "search and reward": 3.0,
        "update": 7.5,
        "transfers": 7.0,  # with the 3 s of the tables, which the loop did not wait for
        "idle": 4.0,
    }


def test_what_nobody_measured_is_not_made_up():
    seconds, scale = shared_seconds(20.0, None, Transfers(), None)
    assert scale is None
    assert seconds == {"collection and update": 20.0, "transfers": 0.0, "idle": 0.0}
    (line,) = loop_lines({"device_utilization": None})
    assert "unknown" in line


def test_the_whole_of_ppo_is_in_the_profile(loop, monkeypatch):
    monkeypatch.setattr(reformulation_profile, "part_seconds", lambda _: PartSeconds(1.0, 2.0, 0.5))
    result = {
        "env_steps": 32,
        "updates": 8,
        "env_steps_per_second": 2.0,
        "compile_seconds": 3.0,
    }
    found = profile_loop(loop, result, 30.0, 0.5)
    # 16 s in the program, half of them idle; 2 rollouts of 16 env steps and 8 updates took
    # 2 + 4 + 4 = 10 s apart; 30 - 3 - 16 = 11 s are left for evaluations and saving.
    assert found.scale == pytest.approx(0.8)
    assert found.seconds == pytest.approx(
        {
            "compilation": 3.0,
            "forward": 1.6,
            "search and reward": 3.2,
            "update": 3.2,
            "transfers": 0.0,
            "idle": 8.0,
            "evaluation and saving": 11.0,
        }
    )


def test_a_device_without_memory_to_spare_leaves_the_loop_in_one_piece(loop, monkeypatch):
    def full(loop):
        raise tf.errors.ResourceExhaustedError(None, None, "full")

    monkeypatch.setattr(reformulation_profile, "part_seconds", full)
    result = {"env_steps": 8, "updates": 1, "env_steps_per_second": 2.0, "compile_seconds": 0.0}
    assert profile_loop(loop, result, 5.0, None).seconds["collection and update"] == 4.0


def test_parts_are_differences_of_what_is_timed(loop, monkeypatch):
    seconds = iter([3.0, 1.0, 9.0])  # a rollout, one without the network, an iteration

    def call(run):
        return next(seconds), run()

    monkeypatch.setattr(reformulation_profile, "fastest_call", call)
    before = [w.copy() for w in loop.agent.policy.network.get_weights()]
    # 3 epochs of 2 updates in 9 - 3 seconds
    assert part_seconds(loop) == PartSeconds(2.0, 1.0, 1.0)
    assert loop.agent.policy.updates.numpy() == 6  # it learned, and has its weights back
    for old, new in zip(before, loop.agent.policy.network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_without_the_network_actions_are_standard_normal_numbers(loop):
    without = WithoutNetwork(loop.agent)
    obs = {"candidates": tf.ones([4, 6, 4]), "state": tf.ones([4, 4])}
    params, _ = without.policy.outputs(obs, without.policy.acting_weights(None))
    distribution = loop.agent.policy.distribution
    noise = tf.random.stateless_normal([4, 6], [0, 0])
    np.testing.assert_array_equal(distribution.sample(params, noise), noise)
    assert without.cfg is loop.agent.cfg and without.memory is loop.agent.memory


def test_on_a_cpu_nothing_is_transferred(loop):
    assert measure_transfers(loop, 100) == Transfers(0, 0.0, 0.0)


def test_on_a_gpu_a_part_of_the_tables_is_copied_and_counts_for_all(loop, monkeypatch):
    columns = SimpleNamespace(device="a GPU")
    env = SimpleNamespace(arrays={"columns": columns}, table_bytes=10_000)
    copied = []
    monkeypatch.setattr(tf, "device", lambda name: contextlib.nullcontext())
    monkeypatch.setattr(tf, "constant", lambda part: copied.append(part) or tf.identity(part))
    monkeypatch.setattr(reformulation_profile, "COPIED_BYTES", 1_000)
    monkeypatch.setattr(reformulation_profile, "fastest_call", lambda run: (0.5, run()))
    found = measure_transfers(SimpleNamespace(env=env, agent=loop.agent), 100)
    assert found == Transfers(10_000, 5.0, 50.0) and copied[0].nbytes == 1_000


def test_the_loop_is_kept_until_it_is_released(tmp_path):
    keeper = LoopKeeper()
    keeper.on_train_begin(
        TrainState(tmp_path, None, "", "device", "/CPU:0", trackables={"loop": "the loop"})
    )
    assert keeper.loop == "the loop"
    keeper.release()
    assert keeper.loop is None
