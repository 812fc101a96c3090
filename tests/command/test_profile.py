"""`--profile` of `kytolly train`: parts, their arithmetic, and where they are written."""

import json

import pytest

from kytolly.command import profile
from kytolly.command.entry import main
from kytolly.command.profile import differences, profile_lines

FEW = ["--log-interval-env-steps", "256", "--evaluation-interval-env-steps", "600"]
SMALL = ["--evaluation-episodes", "2", "--final-evaluation-episodes", "2", "--no-xla", "--json"]
SIZES = {
    "dqn": ["--total-env-steps", "600", "--warmup-env-steps", "200", "--batch-size", "8"],
    "ppo": ["--total-env-steps", "512", "--rollout-steps", "16", "--num-minibatches", "1"],
}


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
@pytest.mark.parametrize("loop", ["device", "host"])
def test_the_parts_of_an_agents_run_are_printed_and_saved(
    algorithm, loop, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("kytolly.machine.timing.TURNS", 2)
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
