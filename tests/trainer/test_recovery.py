"""Memory that does not suffice and losses that are no numbers, made up: what a run then does."""

import math
import re

import numpy as np
import pytest
import tensorflow as tf

from kytolly.command.exits import exit_status
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.config.supervised import SupervisedConfig
from kytolly.environment.faults import EnvironmentFault, raise_fault
from kytolly.loop import recovery
from kytolly.loop.program import Program
from kytolly.machine.memory import NotEnoughMemory
from kytolly.policy.dqn import DQNPolicy
from kytolly.policy.ppo import PPOPolicy
from kytolly.record.metrics_file import read_rows
from kytolly.record.saved_run import SavedRun
from kytolly.trainer import Trainer
from tests.helpers.cases import learning

COMMON = {
    "total_env_steps": 96, "num_envs": 2, "hidden_units": [4], "xla": False,
    "evaluation_episodes": 2, "final_evaluation_episodes": 2, "log_interval_env_steps": 16,
    "evaluation_interval_env_steps": 48, "checkpoint_interval_env_steps": 32, "loop": "device",
}  # fmt: skip
DQN = {"algorithm": "dqn", "batch_size": 32, "warmup_env_steps": 32, "train_interval_env_steps": 8,
       "updates_per_interval": 2}  # fmt: skip
PPO = {"algorithm": "ppo", "rollout_steps": 8, "num_minibatches": 1, "epochs": 2}
FULL = tf.errors.ResourceExhaustedError(None, None, "Out of memory while trying to allocate 9 GiB.")


def train(folder, settings, **changes):
    return Trainer(folder, progress=False).train({**COMMON, **settings, **changes}, "CartPole-v1")


def saved_settings(folder):
    return SavedRun.existing(folder).read_config().settings


def weights(result):
    return np.concatenate([np.ravel(weight) for weight in result.agent.policy.network.weights])


def fail_above(monkeypatch, most):
    """Make programs with more than `most` rows in one gradient fail, as XLA does."""
    for policy, column in ((DQNPolicy, "reward"), (PPOPolicy, "advantage")):

        def loss(self, batch, weights, hyper, whole=policy.loss, column=column):
            if getattr(batch, column).shape[0] > most:
                raise FULL
            return whole(self, batch, weights, hyper)

        monkeypatch.setattr(policy, "loss", loss)


@pytest.mark.parametrize(
    "settings, loop, small, rungs",
    [
        (
            DQN,
            "device",
            {"batch_size": 8, "gradient_accumulation": 4},
            [
                "gradient_accumulation 1 -> 2, batch_size 32 -> 16",
                "gradient_accumulation 2 -> 4, batch_size 16 -> 8",
            ],
        ),
        learning(
            (
                PPO,
                "host",
                {"num_minibatches": 2, "gradient_accumulation": 2},
                ["gradient_accumulation 1 -> 2, num_minibatches 1 -> 2"],
            )
        ),
    ],
    ids=["dqn", "ppo"],
)
def test_batches_shrink_until_they_fit(settings, loop, small, rungs, tmp_path, monkeypatch):
    expected = train(tmp_path / "small", settings, **small, loop=loop)
    fail_above(monkeypatch, 8)
    with pytest.warns(UserWarning) as said:
        result = train(tmp_path / "run", settings, on_oom="shrink", loop=loop)
    assert [fault["change"] for fault in result.summary["faults"]] == rungs
    lines = [str(one.message) for one in said if "out of memory" in str(one.message)]
    assert len(lines) == len(rungs)
    assert "(Out of memory while trying to allocate 9 GiB): training goes on from the" in lines[0]
    assert {name: saved_settings(tmp_path / "run")[name] for name in small} == small
    assert result.stopped_by == "total_env_steps" and "faults" not in expected.summary
    # The same updates as of a run that began with small batches, which never failed.
    np.testing.assert_array_equal(weights(result), weights(expected))
    if loop == "host":  # the faults are known to a resumed run
        longer = saved_settings(tmp_path / "run") | {"total_env_steps": 160}
        resumed = Trainer(tmp_path / "run", progress=False).train(
            longer, "CartPole-v1", resume=True
        )
        assert resumed.summary["faults"] == result.summary["faults"]
        assert resumed.summary["env_steps"] >= 160


@pytest.mark.parametrize("settings", [DQN, learning(PPO)], ids=["dqn", "ppo"])
def test_without_leave_to_shrink_one_line_says_what_to_do(settings, tmp_path, monkeypatch, capsys):
    fail_above(monkeypatch, 8)
    rows = 32 if settings is DQN else 16
    with pytest.raises(recovery.OutOfMemory) as error:
        train(tmp_path / "run", settings)
    text = f"out of memory on the CPU with {rows} rows at once (Out of memory while trying to"
    assert str(error.value).startswith(text) and "Set on_oom to shrink, or lower" in str(
        error.value
    )
    monkeypatch.setattr(recovery, "reduce_memory", lambda *_: None)
    assert exit_status(lambda: train(tmp_path / "other", settings, on_oom="shrink")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kytolly: {text}") and "gradient_accumulation), num_envs" in line


@pytest.mark.parametrize(
    "settings, loop",
    [
        (DQN, "host"),
        learning((PPO, "device")),
        learning((DQN, "device")),
        learning((PPO, "host")),
    ],
    ids="dqn-host ppo-device dqn-device ppo-host".split(),
)
def test_a_run_goes_on_from_its_last_state(settings, loop, tmp_path, monkeypatch):
    """The fault comes after 64 env steps; nothing before is trained or logged again."""
    failed, call = [], Program.__call__

    def call_or_fail(self, *args):
        agent = getattr(getattr(self.function, "__self__", None), "agent", None)
        done = 0 if agent is None else int(agent.env_steps)
        if done >= 64 and not failed:
            failed.append(done)
            raise FULL
        return call(self, *args)

    monkeypatch.setattr(Program, "__call__", call_or_fail)
    extra = {"acting_interval_env_steps": 8} if settings is DQN and loop == "host" else {}
    if settings is DQN and loop == "host":  # it learns in a graph of its own: fail in that
        monkeypatch.setattr("kytolly.loop.host.Overlap", TakesTurns)
    with pytest.warns(UserWarning, match="out of memory"):
        result = train(tmp_path / "run", settings, on_oom="shrink", loop=loop, **extra)
    assert failed == [64] and result.summary["faults"][0]["env_steps"] == 64
    steps = [int(row["env_steps"]) for row in read_rows(tmp_path / "run" / "metrics.csv")]
    assert steps == sorted(set(steps)) and steps[-1] == result.summary["env_steps"] >= 96
    assert result.summary["updates"] == steps_to_updates(settings, result.summary["env_steps"])


class TakesTurns:
    """Learns from each block in a call from Python, where a fault can be made up."""

    def __init__(self, program, specs):
        self.program = program

    def run(self, blocks, collect, take):
        total = None
        for _ in range(blocks):
            sums, packed = self.program(tf.constant(1), *map(tf.constant, collect()))
            take(packed.numpy())
            total = sums if total is None else total.plus(sums)
        return total

    def take_idle_seconds(self):
        return 0.0

    def close(self):
        pass


def steps_to_updates(settings, env_steps):
    return (env_steps - 24) // 8 * 2 if settings is DQN else env_steps // 16 * 2


def spoil_losses(monkeypatch, above):
    """Make the loss NaN after 5 updates where the learning rate is above a number."""
    for policy in (DQNPolicy, PPOPolicy):

        def loss(self, batch, weights, hyper, whole=policy.loss):
            found = whole(self, batch, weights, hyper)
            bad = self.updates >= (5 if self.cfg.learning_rate > above else 10**6)
            value = found.loss + tf.where(bad, math.nan, 0.0)
            metrics = tf.concat([[value], found.metrics[1:]], axis=0)
            return found._replace(loss=value, metrics=metrics)

        monkeypatch.setattr(policy, "loss", loss)


@pytest.mark.parametrize(
    "settings, final", [learning((DQN, None)), (PPO, 1e-3)], ids=["dqn", "ppo"]
)
def test_a_loss_that_is_no_number_halves_the_rate(settings, final, tmp_path, monkeypatch):
    spoil_losses(monkeypatch, above=3e-3)
    rates = {"learning_rate": 8e-3, "learning_rate_final": final}
    with pytest.warns(UserWarning) as said:
        result = train(tmp_path / "run", settings, on_nan="restart", **rates)
    found = result.summary["faults"]
    assert [fault["fault"] for fault in found] == ["non_finite"] * 2
    assert "learning_rate 0.008 -> 0.004" in found[0]["change"]
    assert result.stopped_by == "total_env_steps" and np.isfinite(weights(result)).all()
    saved = saved_settings(tmp_path / "run")
    assert saved["learning_rate"] == 2e-3
    assert saved["learning_rate_final"] == (None if final is None else final / 4)
    if final is None:  # a variable, which the checkpoint holds as it was
        assert float(result.agent.policy.optimizer.learning_rate) == pytest.approx(2e-3)
    lines = [str(one.message) for one in said if "Suspects" in str(one.message)]
    assert len(lines) == 2
    assert re.search(
        r"loss is nan after .*learning_rate, now 0\.00\d+.*precision float32", lines[0]
    )


@pytest.mark.learning
def test_restarts_are_bounded_and_without_leave_there_is_none(tmp_path, monkeypatch):
    spoil_losses(monkeypatch, above=0.0)
    monkeypatch.setattr(recovery, "MAX_RESTARTS", 1)
    for on_nan, restarts in (("restart", recovery.MAX_RESTARTS), ("stop", 0)):
        with pytest.warns(UserWarning, match="Suspects"):
            result = train(tmp_path / on_nan, PPO, on_nan=on_nan)
        assert result.stopped_by == "non_finite"
        assert len(result.summary.get("faults", [])) == restarts


@pytest.mark.parametrize(
    "error, means_memory",
    [
        (FULL, True),
        (MemoryError(), True),
        (np.exceptions.AxisError("Out of memory"), False),
        (NotEnoughMemory("training would take"), True),
        (tf.errors.InternalError(None, None, "XLA: RESOURCE_EXHAUSTED: Out of memory"), True),
        (tf.errors.InternalError(None, None, "XLA cannot compile"), False),
        (ValueError("Out of memory"), False),
    ],
)
def test_which_errors_mean_memory(error, means_memory):
    assert recovery.is_out_of_memory(error) == means_memory
    assert not (
        means_memory and recovery.is_compile_error(error)
    )  # else the run would go on without XLA
    follower = RuntimeError("the state cannot be read")
    follower.__context__ = error
    assert recovery.is_out_of_memory(follower) == means_memory


def test_an_environment_without_memory_is_its_own_fault():
    with pytest.raises(EnvironmentFault) as error:
        raise_fault("Mine-v0", MemoryError("full"), "step", "after 3 env steps")
    assert not recovery.is_out_of_memory(error.value)


def test_the_ladder_ends_with_precision():
    cfg = PPOConfig(num_envs=9, rollout_steps=5, num_minibatches=1)
    parts = []
    while cfg is not None:
        parts.append((cfg.num_minibatches, cfg.gradient_accumulation, cfg.precision))
        assert cfg.rows_per_update == 45
        cfg = recovery.reduce_memory(cfg, brain_float=True)
    # 45 = 3 x 3 x 5 rows: every batch is whole
    assert parts == [
        (1, 1, "auto"), (3, 3, "auto"), (9, 9, "auto"), (45, 45, "auto"),
        (45, 45, "mixed_bfloat16"),
    ]  # fmt: skip
    assert recovery.reduce_memory(SupervisedConfig(batch_size=1), brain_float=False) is None


@pytest.mark.learning
def test_an_estimate_that_is_too_large_shrinks_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr("kytolly.machine.memory.SMALL_BYTES", 0)
    monkeypatch.setattr("kytolly.machine.facts.available_memory_bytes", lambda: 12_000)
    with pytest.warns(UserWarning, match="out of memory"):
        result = train(tmp_path / "run", PPO, on_oom="shrink", rollout_steps=64)
    assert result.summary["faults"] and result.stopped_by == "total_env_steps"
    with pytest.raises(NotEnoughMemory, match="training would take at least"):
        train(tmp_path / "other", DQN, on_oom="shrink", replay_capacity=10**6)


def test_memory_is_in_the_files_of_a_run(tmp_path):
    result = train(tmp_path / "run", PPO)
    memory = result.summary["memory"]
    assert 50 < memory["process_memory_mb"] <= memory["process_memory_peak_mb"]
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert all(float(row["process_memory_peak_mb"]) > 50 for row in rows)
    assert "device_idle" not in rows[0]  # a program that waits for nobody
    host = train(tmp_path / "host", PPO, loop="host")
    assert all(0 < row["device_idle"] <= 1 for row in host.history)
    assert DQNConfig().on_oom == "stop"
