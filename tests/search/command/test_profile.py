"""`--profile` of a model of texts: the parts of an update."""

from pathlib import Path

import numpy as np
import pytest

from kytolly.loop import profile
from kytolly.loop.profile import profile_run, update_parts
from kytolly.loop.supervised import Learner, SupervisedState
from tests.search.text.tiny_task import ContainsWord, small_config


@pytest.mark.parametrize("changes", [{}, {"tables": "host", "gradient_accumulation": 2}])
def test_the_parts_of_an_update_leave_the_network_as_it_was(changes, monkeypatch):
    learner, ran = Learner(ContainsWord(), small_config(**changes)), []

    def call(run):
        ran.append(run())
        return float(len(ran) ** 2)

    monkeypatch.setattr(profile, "fastest_call", call)
    before = [weight.copy() for weight in learner.network.get_weights()]
    parts = update_parts(learner, None)
    # Calls of 3 updates took 1, 4, 9 and 16 seconds.
    assert parts == pytest.approx({"data": 1 / 3, "forward": 1, "backward": 5 / 3, "update": 7 / 3})
    assert len(ran) == 4 and int(learner.policy.updates) > 0
    data, forward, backward, _ = ran
    assert data < forward < backward  # each adds a loss, then a norm
    for old, new in zip(before, learner.network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_what_was_slower_apart_is_scaled_and_what_is_left_is_idle(monkeypatch):
    learner = Learner(ContainsWord(), small_config())
    state = SupervisedState(Path("run"), learner.cfg, "texts", "device", "/CPU:0", learner=learner)
    summary = {"updates": 10, "updates_per_second": 2.0}
    for each, seconds in ((0.1, {"data": 1.0, "forward": 2.0, "idle": 2.0}),
                          (0.5, {"data": 5 / 3, "forward": 10 / 3, "idle": 0.0})):  # fmt: skip
        parts = {"data": each, "forward": 2 * each}
        monkeypatch.setattr(profile, "update_parts", lambda *_, parts=parts: parts)
        assert profile_run(state, summary, None)["seconds"] == pytest.approx(seconds)
