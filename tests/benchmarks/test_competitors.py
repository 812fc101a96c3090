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
import types

import numpy as np
import pytest

from kytolly.benchmarks import competitors
from kytolly.benchmarks.competitors import packages
from kytolly.benchmarks.competitors.settings import PPOSettings, Settings

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


def need(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; python -m pip install 'kytolly[benchmark]'")


def run(program, *arguments):
    """Run a competitor in its own process and return the object in its last line."""
    command = [sys.executable, "-m", f"kytolly.benchmarks.competitors.{program}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


STUBS = ("torch", "gymnasium", "stable_baselines3", "jax", "jaxlib", "rejax", "gymnax", "flax",
         "optax", "chex", "distrax", "flashbax")  # fmt: skip
STUB = "try:\n    import tensorflow\nexcept ImportError:\n    pass\n"
RUN_UNTIL_IT_FAILS = """
    import importlib, json, sys
    program = importlib.import_module("kytolly.benchmarks.competitors." + sys.argv[1])
    try:
        program.main(sys.argv[2:])
    except (Exception, SystemExit):
        pass  # a stub has none of what the program asks it for
    print(json.dumps({name: module is not None for name, module in sys.modules.items()}))
"""


@pytest.mark.parametrize(
    ("program", "package"),
    [("sb3_dqn", "stable_baselines3"), ("rejax_ppo", "rejax"), ("jax_update", "jax"),
     ("purejaxrl_dqn", "flashbax")],
)  # fmt: skip
def test_a_competitor_whose_packages_ask_for_tensorflow_does_not_get_it(
    program, package, tmp_path, monkeypatch
):
    for name in (*STUBS, "tensorflow"):  # every package asks for it, as TensorBoard does
        (tmp_path / f"{name}.py").write_text(STUB if name != "tensorflow" else "")
    (tmp_path / "purejaxrl").mkdir()
    for name in ("dqn", "ppo"):
        (tmp_path / "purejaxrl" / f"{name}.py").write_text("")
    clone = ["--checkout", str(tmp_path)] if program.startswith("purejaxrl") else []
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUN_UNTIL_IT_FAILS), program, *clone],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded[package]
    assert loaded["tensorflow"] is False  # looked up, and refused


def check_loop(result, env_steps, train_interval, without_update=0):
    """Check what every competitor that has an environment promises."""
    assert result["env_steps"] == env_steps
    assert result["updates"] == (env_steps - without_update) // train_interval
    assert result["env_steps_per_second"] == pytest.approx(env_steps / result["wall_seconds"])
    assert result["cpu_seconds"] > 0.0
    assert result["settings"]["hidden"] == [120, 84]
    assert result["settings"]["seed"] == 3
    assert "python" in result["versions"]
    assert "Off:" in result["note"]


def test_stable_baselines3_updates_once_per_train_interval_after_the_warm_up():
    need("torch", "stable_baselines3")
    result = run("sb3_dqn", *SMALL, "--env-steps", "200")
    check_loop(result, 200, 5)  # 40 updates: none of the warm-up, none of the settling
    assert result["compile_seconds"] == 0.0


def test_rejax_reaches_the_train_interval_with_that_many_environments():
    need("jax", "rejax")
    result = run("rejax_dqn", *SMALL, "--env-steps", "200")
    check_loop(result, 200, 5)
    assert result["settings"]["num_envs"] == 5
    assert result["compile_seconds"] > 0.0


def test_purejaxrl_runs_from_a_clone():
    need("jax", "gymnax", "flashbax", "flax", "optax", "chex")
    if not os.environ.get(CHECKOUT):
        pytest.skip(f"{CHECKOUT} names no clone of https://github.com/luchris429/purejaxrl")
    clone = os.environ[CHECKOUT]
    result = run("purejaxrl_dqn", *SMALL, "--env-steps", "200", "--checkout", clone)
    # It always starts from the beginning: 250 env steps, no update in the first 50.
    check_loop(result, 250, 5, without_update=50)
    assert result["compile_seconds"] > 0.0


def check_ppo(result, env_steps):
    """Check what every PPO promises: whole rollouts of 16 env steps, 6 updates after each."""
    assert result["env_steps"] == env_steps
    assert result["updates"] == env_steps // 16 * 6
    assert result["env_steps_per_second"] == pytest.approx(env_steps / result["wall_seconds"])
    assert result["cpu_seconds"] > 0.0
    assert result["settings"]["hidden"] == [64, 64]
    assert result["settings"]["num_envs"] == 2
    assert result["settings"]["seed"] == 3
    assert "python" in result["versions"]
    assert "Off:" in result["note"]


def test_stable_baselines3_ppo_counts_updates_and_not_its_epochs():
    need("torch", "stable_baselines3")
    result = run("sb3_ppo", *SMALL_PPO, "--env-steps", "200")
    check_ppo(result, 208)  # 12.5 rollouts become 13; the untimed ones are not among them
    assert result["compile_seconds"] == 0.0
    assert result["settings"]["torch_threads"] == 1


def test_rejax_ppo_times_whole_rollouts():
    need("jax", "rejax")
    result = run("rejax_ppo", *SMALL_PPO, "--env-steps", "200")
    check_ppo(result, 208)
    assert result["compile_seconds"] > 0.0


def test_purejaxrl_ppo_runs_from_a_clone():
    need("jax", "gymnax", "flax", "optax", "chex", "distrax")
    if not os.environ.get(CHECKOUT):
        pytest.skip(f"{CHECKOUT} names no clone of https://github.com/luchris429/purejaxrl")
    clone = os.environ[CHECKOUT]
    result = run("purejaxrl_ppo", *SMALL_PPO, "--env-steps", "200", "--checkout", clone)
    check_ppo(result, 208)
    assert result["compile_seconds"] > 0.0


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

    settings = Settings(batch_size=8, hidden=(5,), learning_rate=0.0)
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

    settings = Settings(
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
    ("given", "complaint"),
    [
        ({"env_steps": 0}, "--env-steps is 0, expected at least 1"),
        ({"num_envs": 4}, "not a multiple"),  # of the train interval, 10
        ({"warmup_env_steps": 100}, "less than one batch"),  # of 128
        ({"buffer": 500}, "holds less"),  # than the warm-up, 1,000
        ({"hidden": ()}, "--hidden is empty, expected at least one layer"),
    ],
)
def test_settings_that_would_falsify_a_measurement_are_refused(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        Settings(**given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"env_steps": 0}, "--env-steps is 0, expected at least 1"),
        ({"epochs": 0}, "--epochs is 0, expected at least 1"),
        ({"minibatches": 3}, "not a multiple"),  # of 512 rows
        ({"minibatches": 512}, "one row in each"),
        ({"hidden": (64, 0)}, "at least one layer"),
        ({"activation": "swish"}, "--activation is swish, expected one of tanh, relu"),
    ],
)
def test_ppo_settings_that_would_falsify_a_measurement_are_refused(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        PPOSettings(**given)


def test_ppo_settings_know_the_size_of_a_rollout_and_of_a_minibatch():
    first, second = PPOSettings(), PPOSettings(num_envs=2048, num_steps=16, minibatches=32)
    assert (first.env_steps_per_iteration, first.minibatch_rows) == (4 * 128, 128)
    assert (second.env_steps_per_iteration, second.minibatch_rows) == (32_768, 1_024)
    # 100,000 env steps are 195.3 rollouts of 512, or 3.05 of 32,768.
    assert first.whole_env_steps == 196 * 512
    assert second.whole_env_steps == 4 * 32_768
    assert PPOSettings(env_steps=1_024).whole_env_steps == 1_024


def test_the_target_interval_becomes_env_steps():
    # 50 updates at one per 10 env steps, and at one per env step.
    assert Settings().target_sync_env_steps == 500
    assert Settings(train_interval=1).target_sync_env_steps == 50


def test_command_line_and_settings_have_the_same_fields_and_defaults():
    settings, _ = competitors.parse(competitors.make_parser("x", "A title.\n\nMore."), [])
    assert settings == Settings()
    given = ["--hidden", "32,16,8", "--learning-rate", "1e-3"]
    settings, _ = competitors.parse(competitors.make_parser("x", "A title."), given)
    assert settings == Settings(hidden=(32, 16, 8), learning_rate=1e-3)


def refusal(capsys, call, *arguments):
    """Return the one line that a refused call prints; it must end with status 2."""
    with pytest.raises(SystemExit) as stopped:
        call(*arguments)
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys):
    line = refusal(capsys, packages.require, "json", "no_such_package")
    assert "python -m pip install no-such-package" in line


def test_purejaxrl_refuses_a_folder_that_is_no_clone_and_another_network(capsys, tmp_path):
    from kytolly.benchmarks.competitors import purejaxrl_dqn

    where = ["--checkout", str(tmp_path)]
    assert "no purejaxrl/dqn.py" in refusal(capsys, purejaxrl_dqn.main, where)
    line = refusal(capsys, purejaxrl_dqn.main, [*where, "--hidden", "64,64"])
    assert "--hidden is 64,64" in line


def test_a_span_takes_both_clocks_at_its_begin_and_at_its_end(monkeypatch):
    wall, cpu = iter([10.0, 14.0]), iter([1.0, 1.5])
    clocks = types.SimpleNamespace(perf_counter=lambda: next(wall), process_time=lambda: next(cpu))
    monkeypatch.setattr(competitors, "time", clocks)
    with competitors.Span() as span:
        pass
    assert (span.wall_seconds, span.cpu_seconds) == (4.0, 0.5)


def test_the_result_is_the_last_line_and_carries_the_rate(capsys):
    span = competitors.Span()
    span.wall_seconds, span.cpu_seconds = 4.0, 3.0
    competitors.print_result(
        competitors.make_result(
            name="n", versions={}, env_steps=100, updates=10, span=span,
            compile_seconds=1.0, settings={"seed": 0}, note="",
        )
    )  # fmt: skip
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["env_steps_per_second"] == 25.0  # 100 steps in 4 s; compile and CPU time aside
    assert result["cpu_seconds"] == 3.0
    assert result["settings"]["usable_cores"] == competitors.usable_cores()
