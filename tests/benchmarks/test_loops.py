"""Our programs count their own work, and do what the competitors are asked to do."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from kytolly.benchmarks import core, loops, program
from kytolly.benchmarks.loops import LoopOptions
from kytolly.benchmarks.program import run_programs
from kytolly.benchmarks.settings import DQNSettings, PPOSettings, PQNSettings, RecurrentSettings
from kytolly.loop.learn import LoopMetrics

DQN = DQNSettings(
    env_steps=200, seed=3, batch_size=8, train_interval=5, buffer=300, hidden=(8,),
    target_sync_updates=4, warmup_env_steps=50,
)  # fmt: skip
# A rollout is 2 x 8 = 16 env steps; 2 epochs of 2 minibatches are 4 updates.
PPO = PPOSettings(
    env_steps=200, seed=3, num_envs=2, num_steps=8, epochs=2, minibatches=2, hidden=(8,)
)
WORKS = {
    # One update for every 5 env steps, none of the warm-up. One set of weights acts in the host
    # loop for 6 iterations of 5 env steps: 85 become 90.
    "dqn": (loops.dqn_work, DQN, (200, 40), 85, (90, 18)),
    # 12.5 rollouts become 13; the untimed are not among them.
    "ppo": (loops.ppo_work, PPO, (208, 52), 200, (208, 52)),
}


def measure(name, loop="device", calls=1, **changes):
    """The result of a loop without XLA: what is asserted are counts and digests."""
    make_work, settings, *_ = WORKS[name]
    work = make_work(dataclasses.replace(settings, **changes))
    work = work._replace(cfg=dataclasses.replace(work.cfg, xla=False))
    return loops.measure(work, LoopOptions(loop=loop, calls=calls, digests=loop == "device"))


@pytest.mark.parametrize("name", ["dqn", pytest.param("ppo", marks=pytest.mark.learning)])
def test_a_loop_counts_its_own_work_and_its_digests_are_those_of_the_seed(name):
    _, _, counts, host_steps, host_counts = WORKS[name]
    first, again, other = measure(name), measure(name, calls=3), measure(name, seed=4)
    assert (first["env_steps"], first["updates"]) == counts
    assert first["env_steps_per_second"] == pytest.approx(counts[0] / first["wall_seconds"])
    first, again, other = (run["digests"] for run in (first, again, other))
    state = {"weights", "optimizer", "counters"} | (
        {"target", "buffer"} if name == "dqn" else set()
    )
    assert set(first) == state | {"metrics"}
    assert {part for part in state if first[part] == again[part]} == state
    assert not {part for part in first if first[part] == other[part]} - {"counters"}
    host = measure(name, "host", env_steps=host_steps)
    assert (host["env_steps"], host["updates"]) == host_counts
    assert "digests" not in host


def test_the_clock_runs_after_compiling_and_warm_up_and_until_the_last_step(monkeypatch):
    happened = []

    class Loop:
        def run(self, env_steps):
            happened.append(env_steps)
            return LoopMetrics(*(np.zeros(()) for _ in LoopMetrics._fields))

        def close(self):
            happened.append("closed")

    class Span(program.Span):
        def start(self):
            happened.append("start")
            super().start()

        def stop(self):
            super().stop()
            happened.append("stop")

    counts = iter([(600, 100), (800, 140)])
    monkeypatch.setattr(core, "make_loop", lambda cfg, env, kind: (Loop(), None))
    monkeypatch.setattr(loops, "Span", Span)
    monkeypatch.setattr(loops, "counts", lambda agent: next(counts))
    result = loops.measure(loops.Work("DQN", DQN, None, 550), LoopOptions(calls=2))
    assert happened == [0, 550, "start", 100, 100, "stop", "closed"]
    assert (result["env_steps"], result["updates"]) == (200, 40)


def test_calls_share_the_steps_in_whole_iterations():
    settings = dataclasses.replace(DQN, env_steps=101)
    assert loops.steps_per_call(settings, 1) == [105]  # 21 iterations of 5
    assert loops.steps_per_call(settings, 2) == [50, 55]
    assert sum(loops.steps_per_call(settings, 8)) == 105


def test_updates_are_counted_by_the_policy_and_drawn_from_a_full_buffer(monkeypatch):
    fused, learners = core.fused_updates, []

    def uncompiled(learner, jit):
        learners.append(learner)
        return fused(learner, None)

    monkeypatch.setattr(core, "fused_updates", uncompiled)
    result = loops.measure_updates(DQN, loops.UpdateOptions(30))
    assert (result["updates"], result["env_steps"]) == (30, None)
    assert result["microseconds_per_update"] == pytest.approx(result["wall_seconds"] / 30 * 1e6)
    assert result["settings"]["batch_size"] == 8
    assert np.isfinite(result["loss_last"])
    memory = learners[0].memory
    assert int(memory.size.numpy()) == 300
    assert set(np.unique(memory.columns.discount.numpy())) == {0.0, np.float32(0.99)}
    assert len(np.unique(memory.columns.obs.numpy(), axis=0)) == 300


def test_the_configs_are_what_the_competitors_are_asked_for():
    given = PPOSettings(
        env_steps=100, num_envs=3, num_steps=10, epochs=7, minibatches=5, hidden=(9, 8),
        activation="relu", learning_rate=0.1, gamma=0.8, gae_lambda=0.7, clip=0.3,
        entropy_coef=0.02, value_coef=0.4, max_grad_norm=0.6, seed=11,
    )  # fmt: skip
    cfg = loops.ppo_work(given).cfg
    assert (cfg.total_env_steps, cfg.env_steps_per_iteration) == (120, 30)
    assert cfg.epochs * cfg.updates_per_epoch == 35
    assert cfg.rows_per_update == given.minibatch_rows == 6
    assert (cfg.hidden_units, cfg.activation, cfg.seed) == ((9, 8), "relu", 11)
    assert (cfg.learning_rate, cfg.learning_rate_final) == (0.1, None)
    assert (cfg.gamma, cfg.gae_lambda, cfg.clip_range) == (0.8, 0.7, 0.3)
    assert (cfg.entropy_coef, cfg.value_coef, cfg.max_grad_norm) == (0.02, 0.4, 0.6)
    # As for the competitors: two networks, nothing normalized but advantages, no early end.
    assert not (cfg.shared_torso or cfg.normalize_observations or cfg.normalize_rewards)
    assert cfg.normalize_advantage and cfg.target_kl is None
    recurrent = loops.recurrent_work(RecurrentSettings(memory="lstm", memory_units=9)).cfg
    assert (recurrent.memory, recurrent.memory_units, recurrent.memory_place) == (
        "lstm",
        9,
        "after",
    )
    assert (recurrent.hidden_units, recurrent.activation) == ((128, 128), "relu")
    assert recurrent.sequence_length == recurrent.rows_per_update == 128  # one environment's
    pqn = loops.pqn_work(PQNSettings(td_lambda=0.7, seed=2)).cfg
    assert (pqn.td_lambda, pqn.seed, pqn.learning_rate, pqn.num_envs) == (0.7, 2, 5e-4, 128)
    rainbow = loops.dqn_work(DQN, loops.Variant(algorithm="rainbow", atoms=21)).cfg
    assert (rainbow.algorithm, rainbow.num_atoms, rainbow.batch_size) == ("rainbow", 21, 8)
    noisy = loops.dqn_work(DQN, loops.Variant(switch="noisy"))
    assert (noisy.cfg.noisy, noisy.untimed) == (True, 550)  # 50 and 100 updates of 5 env steps
    assert loops.atari_work(DQN).cfg.network == "cnn"
    # Fewer timed steps than the warm-up has, as in a trial run: 1,000, 100 updates of 10, and 400.
    assert loops.dqn_work(DQNSettings(env_steps=400)).cfg.total_env_steps == 2_400


@pytest.mark.parametrize(
    "words",
    [
        ["dqn", "--calls", "0"],
        ["dqn", "--calls", "99", "--env-steps", "100"],
        ["ppo", "--env-steps", "1000", "--calls", "3"],  # two rollouts of 512
        ["update", "--updates", "0"],
    ],
)
def test_work_that_measures_nothing_is_refused(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_programs(loops.PROGRAMS, loops.__doc__, words)
    assert stopped.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_a_digest_sees_one_bit():
    one, other = tf.Variable([1.0, 2.0]), tf.Variable([1.0, np.nextafter(np.float32(2), 3)])
    first, second = (loops.digest([loops.bytes_of(variable)]) for variable in (one, other))
    assert first != second
    assert first == loops.digest([loops.bytes_of(tf.Variable([1.0, 2.0]))])
