"""Several seeds in one process, and what is printed of them."""

import json

import pytest

from scripts.learning_seeds import main, statistics_text


def test_seeds_that_never_solved_count_as_endless():
    runs = [{"seed": n, "best": 400.0 + n, "last": 100.0 * n, "solved": 10 * n} for n in (1, 2, 3)]
    runs[0]["solved"] = None
    best, last, solved = statistics_text(runs).splitlines()
    assert best.startswith("best weights: IQM 402.0") and "worst 401.0" in best
    assert "mean 200.0, worst 100.0, best 300.0" in last
    assert solved == "solved after: median 30, last inf"


@pytest.mark.learning
@pytest.mark.parametrize("on", [[], ["--on", "ray"]], ids=["here", "cluster"])
def test_each_seed_is_trained_and_its_last_weights_are_played(on, capsys):
    if on:
        pytest.importorskip("ray")
    small = ["--hidden-units", "4", "--batch-size", "8", "--warmup-env-steps", "64", "--no-xla"]
    flags = ["dqn", "--env", "CartPole-v1", "--total-env-steps", "160", *small]
    assert main(["--solved", "1", *on, "3,5", *flags]) == 0
    *seeds, best, last, solved = capsys.readouterr().out.splitlines()
    first, second = map(json.loads, seeds)
    assert (first["seed"], second["seed"]) == (3, 5)
    assert first["solved"] and 1 <= first["last"] <= 500
    assert best.startswith("best weights") and last.startswith("last weights") and solved
