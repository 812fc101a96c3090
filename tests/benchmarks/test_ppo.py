"""PPO's program counts its own work, and its tables ask every contender for the same."""

import dataclasses
import json

import pytest

from kytolly.benchmarks import comparisons, environments, ppo, suite
from kytolly.benchmarks.competitors import make_parser, parse
from kytolly.benchmarks.competitors.settings import PPOSettings
from kytolly.benchmarks.suite import Options, Report

# A rollout is 2 x 8 = 16 env steps; 2 epochs of 2 minibatches are 4 updates.
TINY = {"num_envs": 2, "num_steps": 8, "epochs": 2, "minibatches": 2, "hidden": (8,)}


@pytest.fixture
def watch():
    return suite.Watch(suite.progress_display())


# --- the program ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def device_run():
    return ppo.measure_loop(PPOSettings(env_steps=200, seed=3, **TINY), "device", 1, True)


@pytest.fixture(autouse=True, scope="module")
def uncompiled():
    """Without XLA: what is asserted are counts and digests."""
    made = ppo.make_config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppo, "make_config", lambda *a: dataclasses.replace(made(*a), xla=False))
        yield


def test_the_device_loop_counts_whole_rollouts_and_their_updates(device_run):
    assert device_run["env_steps"] == 208  # 12.5 rollouts become 13; the untimed are not among them
    assert device_run["updates"] == 52
    assert device_run["env_steps_per_second"] == pytest.approx(208 / device_run["wall_seconds"])
    assert "Timed after 80 env steps" in device_run["note"]  # 5 rollouts


def test_digests_are_those_of_the_seed_whatever_the_calls(device_run):
    again = ppo.measure_loop(PPOSettings(env_steps=200, seed=3, **TINY), "device", 3, True)
    other = ppo.measure_loop(PPOSettings(env_steps=200, seed=4, **TINY), "device", 1, True)
    first, again, other = (run["digests"] for run in (device_run, again, other))
    state = {"weights", "optimizer", "counters"}
    assert set(first) == state | {"metrics"}
    assert {part for part in state if first[part] == again[part]} == state
    assert not {part for part in first if first[part] == other[part]} - {"counters"}


def test_the_host_loop_does_the_same_amount_of_work(capsys):
    flags = ["--loop", "host", "--env-steps", "200", "--num-envs", "2", "--num-steps", "8",
             "--epochs", "2", "--minibatches", "2", "--hidden", "8"]  # fmt: skip
    ppo.main(flags)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["env_steps"], result["updates"]) == (208, 52)
    assert result["settings"]["hidden"] == [8]
    assert "digests" not in result


def test_the_configuration_is_what_the_competitors_are_asked_for():
    given = PPOSettings(
        env_steps=100, num_envs=3, num_steps=10, epochs=7, minibatches=5, hidden=(9, 8),
        activation="relu", learning_rate=0.1, gamma=0.8, gae_lambda=0.7, clip=0.3,
        entropy_coef=0.02, value_coef=0.4, max_grad_norm=0.6, seed=11,
    )  # fmt: skip
    cfg = ppo.make_config(given)
    assert (cfg.total_env_steps, cfg.env_steps_per_iteration) == (120, 30)
    assert cfg.epochs * cfg.updates_per_epoch == 35
    assert cfg.rows_per_update == given.minibatch_rows == 6
    assert (cfg.hidden_units, cfg.activation, cfg.seed) == ((9, 8), "relu", 11)
    assert (cfg.learning_rate, cfg.learning_rate_final) == (0.1, None)
    assert (cfg.gamma, cfg.gae_lambda, cfg.clip_range) == (0.8, 0.7, 0.3)
    assert (cfg.entropy_coef, cfg.value_coef, cfg.max_grad_norm) == (0.02, 0.4, 0.6)
    # As for the competitors: two networks, nothing normalised but advantages, no early end.
    assert not (cfg.shared_torso or cfg.normalize_observations or cfg.normalize_rewards)
    assert cfg.normalize_advantage and cfg.target_kl is None


@pytest.mark.parametrize("calls", ["0", "3"])
def test_calls_that_hold_no_rollout_are_refused(calls, capsys):
    with pytest.raises(SystemExit) as stopped:
        ppo.main(["--env-steps", "1000", "--calls", calls])  # two rollouts of 512
    assert stopped.value.code == 2
    assert "expected 1 to 2: a call is whole iterations of 512 env steps" in capsys.readouterr().err


# --- comparisons ---------------------------------------------------------------------------


def settings_of(contender):
    """What a contender's program reads from its command line."""
    known = {f"--{name.replace('_', '-')}" for name in PPOSettings.__dataclass_fields__}
    words = list(contender.arguments)
    flags = [word for i, word in enumerate(words) if word in known or (i and words[i - 1] in known)]
    return parse(make_parser("x", "A title.", kind=PPOSettings), flags)[0]


@pytest.fixture
def sides_of(monkeypatch, watch):
    """A function that returns the contenders of a table instead of measuring them."""

    def find(table, options=Options()):  # noqa: B008  (frozen)
        found = {}

        def comparison(title, unit, contenders, options, watch, pinned=True):
            found.update(
                contenders={contender.name: contender for contender in contenders}, pinned=pinned
            )
            return Report(title, [], [[""]], [], {"rows": [{"compile_seconds": 1.0}]})

        monkeypatch.setattr(comparisons, "comparison", comparison)
        table(options, watch)
        return found["contenders"], found["pinned"]

    return find


def test_the_first_table_asks_every_side_for_the_same_but_for_the_env_steps(sides_of):
    contenders, pinned = sides_of(comparisons.ppo)
    found = {name: settings_of(contender) for name, contender in contenders.items()}
    assert pinned
    assert found.pop("Stable-Baselines3") == PPOSettings(env_steps=20_000)
    assert set(found) == {"Kytolly", "rejax", "PureJaxRL"}
    assert set(found.values()) == {PPOSettings(env_steps=1_000_000)}


def test_the_wide_table_has_the_same_size_on_every_side(sides_of):
    contenders, pinned = sides_of(comparisons.ppo_wide)
    assert pinned
    assert list(contenders) == ["Kytolly", "rejax", "PureJaxRL"]
    wide = PPOSettings(env_steps=1_000_000, num_envs=2048, num_steps=16, minibatches=32)
    assert {settings_of(contender) for contender in contenders.values()} == {wide}


def test_the_host_table_leaves_all_cores_free_and_asks_for_eight_environments(sides_of):
    contenders, pinned = sides_of(comparisons.ppo_host, Options(quick=True))
    assert not pinned
    assert list(contenders)[:2] == ["Kytolly", "Stable-Baselines3"]
    assert contenders["Kytolly"].arguments[:2] == ("--loop", "host")
    found = {settings_of(contender) for contender in contenders.values()}
    assert found == {PPOSettings(env_steps=400, num_envs=8)}


def test_the_compile_ratio_is_our_time_over_theirs():
    runs = [{"versions": {"jaxlib": "1.2", "flax": "3"}}]
    data = [
        {"name": "Kytolly", "compile_seconds": 2.0, "runs": [{"versions": {"tensorflow": "9"}}]},
        {"name": "them", "compile_seconds": 8.0, "runs": runs},
        {"name": "absent", "missing": "why"},
    ]
    rows = [["Kytolly", "1"], ["them", "2"], ["absent: why"]]
    report = comparisons.with_compile_ratio(Report("t", ["", "x"], rows, ["n"], {"rows": data}))
    assert report.rows == [["Kytolly", "1", ""], ["them", "2", "0.25x"], ["absent: why"]]
    assert report.data["rows"][1]["kytolly_compile_ratio"] == 0.25
    assert report.notes[-1].endswith("Compilers: tensorflow 9, jaxlib 1.2.")


# --- environments -------------------------------------------------------------------------


def test_the_largest_fall_is_counted_from_the_best_onwards():
    # Best 10 at place 1; 4 at place 0 came before it; after it 9 and 8, so 2 of 10 are lost.
    assert environments.largest_fall([4.0, 10.0, 9.0, 8.0, 8.5]) == (1, pytest.approx(0.2), 3)
    assert environments.largest_fall([1.0, 2.0]) == (1, 0.0, None)
