"""Presets of `kytolly train`: what they set, what wins over them, and which one fits."""

import json
import sys
import types

import pytest

from kytolly.agent.algorithms import ALGORITHMS, make_config
from kytolly.command.entry import main
from kytolly.command.exits import BadInput
from kytolly.command.preset import with_preset
from kytolly.config.presets import KINDS, PRESETS, preset
from kytolly.machine import doctor, facts, presets
from kytolly.machine.presets import pixel_needs, recommend
from tests.helpers.fake_nvml import FakeGpu, install

GIB = 2**30


@pytest.mark.parametrize("algorithm", ["dqn", "ddqn", "c51", "qr-dqn", "iqn", "ppo"])
def test_a_preset_is_a_config_and_each_takes_more_than_the_one_before(algorithm):
    configs = [make_config({"algorithm": algorithm, **preset(name, algorithm)}) for name in PRESETS]
    updates = [cfg.rows_per_update for cfg in configs]
    assert updates[0] == updates[1] < updates[2]  # safe makes the updates of optimal, in parts
    assert configs[0].gradient_accumulation > configs[1].gradient_accumulation == 1
    needs = list(pixel_needs(algorithm).values())
    assert needs[0] < needs[1] < needs[2]


def test_optimal_is_what_an_algorithm_does_without_a_preset():
    for algorithm in ("dqn", "ppo"):
        plain = make_config({"algorithm": algorithm})
        assert make_config({"algorithm": algorithm, **preset("optimal", algorithm)}) == plain


@pytest.mark.parametrize("name, kind", [("saef", "ppo"), ("safe", "sarsa")])
def test_what_is_no_preset_is_refused(name, kind):
    with pytest.raises(ValueError, match="expected one of"):
        preset(name, kind)
    assert set(KINDS) == set(ALGORITHMS) - {"ppo-kl"}


def test_flags_win_over_a_preset_and_a_preset_over_tuned_settings(capsys):
    tuned = {"batch_size": 7, "gamma": 0.9}
    given = {"batch_size": 64, "replay_capacity": 10_000}
    found = with_preset("safe", tuned, given, "dqn", "CartPole-v1")
    assert found == {
        "batch_size": 64,
        "gradient_accumulation": 4,
        "replay_capacity": 10_000,
        "gamma": 0.9,
    }
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "kytolly: your settings win over the preset safe: batch_size 64 (not 32)."
    with_preset("safe", tuned, {"replay_capacity": 10_000}, "dqn", "CartPole-v1")
    assert capsys.readouterr().err == ""
    with pytest.raises(BadInput, match=r"--preset is 'otpimal', .*Did you mean 'optimal'"):
        with_preset("otpimal", {}, {}, "dqn", "CartPole-v1")


@pytest.mark.parametrize(
    "free, name", [(1, "safe"), (5, "safe"), (7, "optimal"), (100, "aggressive")]
)
def test_the_largest_preset_that_takes_half_of_the_free_memory_is_recommended(
    free, name, monkeypatch
):
    monkeypatch.setattr(facts, "available_memory_bytes", lambda: free * GIB)
    needs = {"safe": 2 * GIB, "optimal": 3 * GIB, "aggressive": 50 * GIB}
    found = recommend(needs, None)
    assert found.name == name
    assert f"{free}.0 GiB are free; safe 2.0 GiB, optimal 3.0 GiB" in found.reason
    assert ("even that is more" in found.reason) == (free == 1)


def test_a_gpu_says_what_is_free_or_the_middle_one_is_taken(monkeypatch):
    install(monkeypatch, FakeGpu("GPU-1", free=1024), FakeGpu("GPU-2", free=2048))
    assert presets.free_bytes("/GPU:1") == 2 * GIB
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert recommend({}, "/GPU:0") == ("optimal", "the free memory is unknown")


def test_the_doctor_recommends_one_with_the_reason(monkeypatch, capsys):
    found = pixel_needs("dqn")
    # 50,000 transitions of two images of 28,224 bytes and 13 more are 2.6 GiB
    assert found["optimal"] == pytest.approx(50_000 * (2 * 28_224 + 13), rel=0.05)
    monkeypatch.setattr(facts, "available_memory_bytes", lambda: 8 * GIB)
    tf = types.SimpleNamespace(config=types.SimpleNamespace(list_physical_devices=lambda _: []))
    check = doctor.check_preset(tf)
    assert check.status == "ok" and check.finding.startswith("optimal for DQN on images")
    assert "8.0 GiB are free" in check.finding and "optimal 2.6 GiB" in check.finding


def test_auto_takes_what_fits_the_environment(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(facts, "available_memory_bytes", lambda: 30 * 2**20)
    found = with_preset("auto", {}, {}, "dqn", "CartPole-v1")
    # 500,000 rows of CartPole are 21 MiB, more than half of what is free; 50,000 are 2 MiB
    assert found == preset("optimal", "dqn")
    assert "preset optimal: 30 MiB are free; safe" in capsys.readouterr().err
    small = ["--total-env-steps", "1500", "--evaluation-episodes", "2", "--batch-size", "8"]
    small += ["--final-evaluation-episodes", "2", "--no-xla", "--log-dir", str(tmp_path / "run")]
    assert main(["train", "dqn", "--env", "CartPole-v1", "--preset", "safe", *small, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["updates"] > 0
    assert "win over the preset safe: batch_size 8 (not 32)" in err
