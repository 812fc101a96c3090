"""`--profile` of `kytolly train`: parts, their arithmetic, and where they are written."""

import json
import time

import numpy as np
import pytest

from kytolly.agent.make_agent import make_agent
from kytolly.callback.base import TrainState
from kytolly.command.entry import main
from kytolly.command.result import profile_lines
from kytolly.config.ppo import PPOConfig
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.loop import profile
from kytolly.loop.device import DeviceLoop
from kytolly.loop.profile import (
    ACTING,
    ENVIRONMENTS,
    UPDATE,
    RunKeeper,
    differences,
    fastest_call,
    iteration_parts,
)
from tests.helpers.cases import learning

FEW = ["--log-interval-env-steps", "256", "--evaluation-interval-env-steps", "600"]
SMALL = ["--evaluation-episodes", "2", "--final-evaluation-episodes", "2", "--no-xla", "--json"]
SIZES = {
    "dqn": ["--total-env-steps", "600", "--warmup-env-steps", "200", "--batch-size", "8"],
    "ppo": ["--total-env-steps", "512", "--rollout-steps", "16", "--num-minibatches", "1"],
}


@pytest.mark.parametrize(
    "algorithm, loop",
    [("ppo", "device"), ("dqn", "host"), learning(("dqn", "device")), learning(("ppo", "host"))],
)
def test_the_parts_of_an_agents_run_are_printed_and_saved(
    algorithm, loop, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(profile, "MAX_CALLS", 2)
    monkeypatch.setattr(profile, "ITERATIONS", 1)
    where = ["--env", "CartPole-v1", "--log-dir", str(tmp_path / "run"), "--loop", loop]
    assert main(["train", algorithm, *where, *SIZES[algorithm], *FEW, *SMALL, "--profile"]) == 0
    out, err = capsys.readouterr()
    summary = json.loads(out.splitlines()[-1])
    saved = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    parts = {"environments and memory", "acting", "forward", "backward", "update", "idle"}
    expected = parts if loop == "device" else {"acting and learning", "idle"}
    assert saved["profile"] == summary["profile"] and set(saved["profile"]["share"]) == expected
    assert sum(saved["profile"]["share"].values()) == pytest.approx(1.0)
    seconds = summary["env_steps"] / summary["env_steps_per_second"]
    assert sum(saved["profile"]["seconds"].values()) == pytest.approx(seconds)
    assert "Time of the steady run by part" in err and "idle" in err


def test_parts_are_differences_and_a_table_says_them():
    assert differences(["a", "b", "c"], [1.0, 3.0, 2.5]) == {"a": 1.0, "b": 2.0, "c": 0.0}
    lines = profile_lines(profile.as_profile({"data": 1.0, "idle": 3.0}))
    assert lines[1].split() == ["data", "1.00", "s", "25.0%"] and len(lines) == 3


def test_the_parts_of_an_iteration_are_differences_and_leave_the_network_as_it_was(monkeypatch):
    cfg = PPOConfig(num_envs=2, rollout_steps=4, num_minibatches=2, epochs=1, xla=False)
    loop = DeviceLoop(make_agent(cfg, CartPole().spec), CartPole())
    seconds, ran = iter([8.0, 24.0, 80.0]), []

    def call(run):
        ran.append(run())
        return next(seconds)

    monkeypatch.setattr(profile, "fastest_call", call)
    before = [weight.copy() for weight in loop.agent.policy.network.get_weights()]
    # Eight iterations took so long without the network, with it, and with the updates.
    expected = {ENVIRONMENTS: 1.0, ACTING: 2.0, UPDATE: 7.0}
    assert iteration_parts(loop, split_update=False) == expected
    assert ran == [0, 0, 16]
    for old, new in zip(before, loop.agent.policy.network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_fastest_call_counts():
    waits = iter([0.05, 0.0, 0.03, *[0.02] * 100])
    assert fastest_call(lambda: time.sleep(next(waits))) < 0.02


def test_a_run_is_kept_until_it_is_released(tmp_path):
    keeper = RunKeeper()
    keeper.on_train_begin(
        TrainState(tmp_path, None, "", "device", "/CPU:0", trackables={"loop": "the loop"})
    )
    assert keeper.loop == "the loop"
    keeper.release()
    assert keeper.loop is None
