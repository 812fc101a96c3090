"""The competitors run, count what they did themselves, and refuse what they cannot do.

Each one runs for a few steps in a process of its own, as a user would start it. A package that
is not installed, or no clone of PureJaxRL, skips its test and says so.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kytolly.benchmarks import program
from kytolly.benchmarks.program import Program, run_programs
from kytolly.benchmarks.settings import DQNSettings, PPOSettings, RecurrentSettings
from kytolly.machine.hardware import usable_cores

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKOUT = "PUREJAXRL_CHECKOUT"
SMALL = [
    "--batch-size=16",
    "--train-interval=5",
    "--buffer=300",
    "--hidden=120,84",
    "--target-sync-updates=4",
    "--warmup-env-steps=50",
    "--seed=3",
]

# 2 environments x 8 steps are 16 rows, in 2 minibatches of 8, taken 3 times: 6 updates per rollout.
SMALL_PPO = [
    "--num-envs=2",
    "--num-steps=8",
    "--epochs=3",
    "--minibatches=2",
    "--hidden=64,64",
    "--seed=3",
]
# A minibatch has the sequence of one environment: 3 x 2 updates per rollout of 16 env steps.
SMALL_RECURRENT = [*SMALL_PPO[:-2], "--hidden=128,128", "--seed=3"]
FLAGS = {"dqn": SMALL, "ppo": SMALL_PPO, "ppo-recurrent": SMALL_RECURRENT}
HIDDEN = {"dqn": [120, 84], "ppo": [64, 64], "ppo-recurrent": [128, 128]}


def need(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; python -m pip install 'kytolly[benchmark]'")


def run(module, *arguments):
    """Run a competitor in its own process and return the object in its last line."""
    command = [sys.executable, "-m", f"kytolly.benchmarks.competitors.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


STUBS = ("torch", "gymnasium", "stable_baselines3", "jax", "jaxlib", "rejax", "gymnax", "flax",
         "optax", "chex", "distrax", "flashbax")  # fmt: skip
STUB = "try:\n    import tensorflow\nexcept ImportError:\n    pass\n"
RUN_UNTIL_IT_FAILS = """
    import importlib, json, sys
    from kytolly.benchmarks.program import run_programs
    module = importlib.import_module("kytolly.benchmarks.competitors." + sys.argv[1])
    try:
        run_programs(module.PROGRAMS, module.__doc__, sys.argv[2:])
    except (Exception, SystemExit):
        pass  # a stub has none of what the program asks it for
    print(json.dumps({name: module is not None for name, module in sys.modules.items()}))
"""


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [
        ("sb3", "dqn", "stable_baselines3"),
        ("rejax", "ppo", "rejax"),
        ("purejaxrl", "dqn", "flashbax"),
    ],
)
def test_a_competitor_whose_packages_ask_for_tensorflow_does_not_get_it(
    module, name, package, tmp_path
):
    for stub in (*STUBS, "tensorflow"):  # every package asks for it, as TensorBoard does
        (tmp_path / f"{stub}.py").write_text(STUB if stub != "tensorflow" else "")
    (tmp_path / "purejaxrl").mkdir()
    (tmp_path / "purejaxrl" / "dqn.py").write_text("")
    clone = ["--checkout", str(tmp_path)] if module == "purejaxrl" else []
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUN_UNTIL_IT_FAILS), module, name, *clone],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded[package]
    assert loaded["tensorflow"] is False  # looked up, and refused


@pytest.mark.parametrize(
    "module, name, needs, env_steps, updates",
    [
        # 200 / 5 updates: none of the warm-up, none of the settling.
        ("sb3", "dqn", ("torch", "stable_baselines3"), 200, 40),
        ("rejax", "dqn", ("jax", "rejax"), 200, 40),
        # It always starts from the beginning: 250 env steps, no update in the first 50.
        ("purejaxrl", "dqn", ("jax", "gymnax", "flashbax", "flax", "optax", "chex"), 250, 40),
        # 12.5 rollouts become 13, with 6 updates after each; the untimed ones are not among them.
        ("sb3", "ppo", ("torch", "stable_baselines3"), 208, 78),
        ("rejax", "ppo", ("jax", "rejax"), 208, 78),
        ("purejaxrl", "ppo", ("jax", "gymnax", "flax", "optax", "chex", "distrax"), 208, 78),
        ("sb3", "ppo-recurrent", ("torch", "sb3_contrib"), 208, 78),
        ("purejaxrl", "ppo-recurrent", ("jax", "gymnax", "flax", "optax", "distrax"), 208, 78),
    ],
)
def test_a_competitor_counts_what_it_was_asked_for(module, name, needs, env_steps, updates):
    need(*needs)
    flags = [*FLAGS[name], "--env-steps", "200"]
    if module == "purejaxrl":
        if not os.environ.get(CHECKOUT):
            pytest.skip(f"{CHECKOUT} names no clone of https://github.com/luchris429/purejaxrl")
        flags += ["--checkout", os.environ[CHECKOUT]]
    result = run(module, name, *flags)
    assert (result["env_steps"], result["updates"]) == (env_steps, updates)
    assert result["env_steps_per_second"] == pytest.approx(env_steps / result["wall_seconds"])
    assert result["cpu_seconds"] > 0.0
    assert (result["compile_seconds"] > 0.0) == (module != "sb3")
    assert result["settings"]["hidden"] == HIDDEN[name]
    assert result["settings"]["seed"] == 3
    assert "python" in result["versions"]
    assert "Off:" in result["note"]


@pytest.mark.parametrize("batches", ["fresh", "predrawn"])
def test_jax_update_counts_its_updates(batches):
    need("jax", "optax")
    result = run("jax_update", "--updates", "30", "--buffer", "2000", "--batches", batches)
    assert result["updates"] == 30
    assert result["settings"]["batches"] == batches
    assert result["env_steps"] is None
    expected = result["wall_seconds"] / 30 * 1e6
    assert result["microseconds_per_update"] == pytest.approx(expected)


def test_jax_update_learns_from_another_batch_each_time():
    need("jax", "optax")
    import jax

    from kytolly.benchmarks.competitors import jax_update

    settings = DQNSettings(batch_size=8, hidden=(5,), learning_rate=0.0)
    params = jax_update.init_params(jax.random.PRNGKey(1), (4, 5, 2))
    replay = jax_update.make_replay(jax.random.PRNGKey(2), settings.buffer)
    state = jax_update.make_optimizer(settings).init(params)
    updates = jax_update.make_updates(settings, 20, predrawn=False)
    _, losses = updates((params, params, state, jax.random.PRNGKey(3)), replay)
    # The weights stand still, so only the rows can make the losses differ.
    assert len(np.unique(np.asarray(losses))) == 20


def test_jax_update_is_the_dqn_update_written_out():
    need("jax", "optax")
    import jax.numpy as jnp

    from kytolly.benchmarks.competitors import jax_update

    settings = DQNSettings(
        batch_size=2, hidden=(3,), learning_rate=0.5, gamma=0.9, max_grad_norm=0.1, buffer=1_000
    )
    rng = np.random.default_rng(0)
    w1, w2, t1, t2 = (rng.normal(size=s) for s in [(4, 3), (3, 2), (4, 3), (3, 2)])
    obs, next_obs = rng.normal(size=(2, 4)), rng.normal(size=(2, 4))
    action, alive = np.array([1, 0]), np.array([1.0, 0.0])
    # Row 0 is far from its target (linear part of Huber), row 1 within 1 of it (square part).
    hidden = np.maximum(obs @ w1, 0.0)
    q = (hidden @ w2)[[0, 1], action]
    next_value = (np.maximum(next_obs @ t1, 0.0) @ t2).max(axis=1)
    reward = np.array([q[0] + 7.0 - 0.9 * next_value[0], q[1] - 0.5])
    td_error = reward + 0.9 * alive * next_value - q
    np.testing.assert_allclose(td_error, [7.0, -0.5])
    loss = np.mean([7.0 - 0.5, 0.5 * 0.5**2])

    slope = np.zeros((2, 2))
    slope[[0, 1], action] = np.array([-1.0, 0.5]) / 2  # Huber's slope, mean of two rows
    grads = [
        obs.T @ ((slope @ w2.T) * (hidden > 0)),
        ((slope @ w2.T) * (hidden > 0)).sum(axis=0),
        hidden.T @ slope,
        slope.sum(axis=0),
    ]
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    assert norm > 0.1  # so that clipping has something to do
    clipped = [g * 0.1 / norm for g in grads]

    def network(first, second):
        return [(jnp.array(first), jnp.zeros(3)), (jnp.array(second), jnp.zeros(2))]

    replay = {
        "obs": obs, "next_obs": next_obs, "action": action, "reward": reward, "alive": alive
    }  # fmt: skip
    params = network(w1, w2)
    carry = (params, network(t1, t2), jax_update.make_optimizer(settings).init(params), None)
    updates = jax_update.make_updates(settings, 1, predrawn=True)
    (after, _, state, _), losses = updates(
        carry, {name: jnp.array(column) for name, column in replay.items()}, jnp.array([[0, 1]])
    )

    np.testing.assert_allclose(losses, [loss], rtol=1e-5)
    # Adam's first moment after one update is a tenth of the gradient it was given.
    np.testing.assert_allclose(
        state[1][0].mu * 10, np.concatenate([g.ravel() for g in clipped]), rtol=1e-4, atol=1e-7
    )
    # Its first step is the learning rate times the sign of the gradient.
    moved = [np.asarray(leaf) for layer in after for leaf in layer]
    for new, old, grad in zip(moved, [w1, np.zeros(3), w2, np.zeros(2)], clipped, strict=True):
        np.testing.assert_allclose(
            new, old - 0.5 * grad / (np.abs(grad) + 1e-8), rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize(
    ("kind", "given", "complaint"),
    [
        (DQNSettings, {"env_steps": 0}, "--env-steps is 0"),
        (DQNSettings, {"num_envs": 4}, "not a multiple"),  # of the train interval, 10
        (DQNSettings, {"warmup_env_steps": 100}, "less than one batch"),  # of 128
        (DQNSettings, {"buffer": 500}, "holds less"),  # than the warm-up, 1,000
        (DQNSettings, {"hidden": ()}, "empty"),
        (PPOSettings, {"env_steps": 0}, "--env-steps is 0"),
        (PPOSettings, {"epochs": 0}, "--epochs is 0"),
        (PPOSettings, {"minibatches": 3}, "not a multiple"),  # of 512 rows
        (PPOSettings, {"minibatches": 512}, "one row in each"),
        (PPOSettings, {"hidden": (64, 0)}, "at least one layer"),
        (RecurrentSettings, {"hidden": (64,)}, "expected two"),
        (RecurrentSettings, {"minibatches": 8}, "whole sequences"),  # of 4 environments
        (RecurrentSettings, {"memory_units": 0}, "--memory-units is 0"),
    ],
)
def test_settings_that_would_falsify_a_measurement_are_refused(kind, given, complaint):
    with pytest.raises(ValueError, match=complaint):
        kind(**given)


def test_settings_know_their_sizes():
    first, second = PPOSettings(), PPOSettings(num_envs=2048, num_steps=16, minibatches=32)
    assert (first.env_steps_per_iteration, first.minibatch_rows) == (4 * 128, 128)
    assert (second.env_steps_per_iteration, second.minibatch_rows) == (32_768, 1_024)
    # 100,000 env steps are 195.3 rollouts of 512, or 3.05 of 32,768.
    assert first.whole_env_steps == 196 * 512
    assert second.whole_env_steps == 4 * 32_768
    assert PPOSettings(env_steps=1_024).whole_env_steps == 1_024
    # 50 updates at one per 10 env steps, and at one per env step.
    assert DQNSettings().target_sync_env_steps == 500
    assert DQNSettings(train_interval=1).target_sync_env_steps == 50


def test_a_command_line_has_the_fields_of_its_settings_and_prints_one_object_last(capsys):
    given = []

    def measure(settings):
        given.append(settings)
        span = program.Span()
        span.wall_seconds, span.cpu_seconds = 4.0, 3.0
        return program.make_result(
            name="n", versions={}, env_steps=100, updates=10, span=span,
            compile_seconds=1.0, settings={"seed": 0}, note="",
        )  # fmt: skip

    programs = {"dqn": Program(measure, (DQNSettings,), {"num_envs": 2})}
    run_programs(programs, "A title.\n\nMore.", ["dqn"])
    flags = ["--hidden", "32,16,8", "--learning-rate", "1e-3"]
    run_programs(programs, "A title.", ["dqn", *flags])
    assert given[0] == DQNSettings(num_envs=2)
    assert given[1] == DQNSettings(num_envs=2, hidden=(32, 16, 8), learning_rate=1e-3)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["env_steps_per_second"] == 25.0  # 100 steps in 4 s; compile and CPU time aside
    assert result["cpu_seconds"] == 3.0
    assert result["settings"]["usable_cores"] == usable_cores()


@pytest.mark.parametrize(
    "module, words, complaint",
    [
        ("purejaxrl", ["dqn", "--checkout", "{}"], "no purejaxrl/dqn.py"),
        ("purejaxrl", ["dqn", "--checkout", "{}", "--hidden", "64,64"], "--hidden is 64,64"),
        ("sb3", ["ppo", "--activation", "swish"], "tanh"),
        ("sb3", ["dqn", "--buffer", "500"], "--buffer"),
        ("sb3", ["ppo-recurrent", "--memory", "gru"], "an LSTM alone"),
        ("purejaxrl", ["ppo-recurrent", "--checkout", "{}"], "no purejaxrl/ppo_rnn.py"),
        ("purejaxrl", ["ppo-recurrent", "--checkout", "{}", "--memory", "lru"], "gru of 128"),
    ],
)
def test_a_competitor_refuses_what_it_cannot_do(module, words, complaint, capsys, tmp_path):
    competitor = importlib.import_module(f"kytolly.benchmarks.competitors.{module}")
    with pytest.raises(SystemExit) as stopped:
        run_programs(competitor.PROGRAMS, None, [word.format(tmp_path) for word in words])
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err


def test_an_error_within_a_measurement_is_not_taken_for_a_bad_setting():
    def fail(settings):
        raise ValueError("of the library that is measured")

    with pytest.raises(ValueError, match="of the library that is measured"):
        run_programs({"dqn": Program(fail, (DQNSettings,))}, None, ["dqn"])


def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys):
    with pytest.raises(SystemExit):
        program.require("json", "no_such_package")
    assert "python -m pip install no-such-package" in capsys.readouterr().err


def test_a_span_takes_both_clocks_at_its_begin_and_at_its_end(monkeypatch):
    wall, cpu = iter([10.0, 14.0]), iter([1.0, 1.5])
    monkeypatch.setattr(program.time, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(program.time, "process_time", lambda: next(cpu))
    with program.Span() as span:
        pass
    assert (span.wall_seconds, span.cpu_seconds) == (4.0, 0.5)
