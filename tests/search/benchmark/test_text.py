"""The table of text training: its arithmetic, and the programs behind it."""

import json

import numpy as np
import pytest

pytest.importorskip("wordllama")

from kytolly.benchmarks.suite import ChildFailed, Options, Watch, progress_display
from kytolly.search.benchmark import text, text_training, torch_rewriter
from kytolly.search.benchmark.text_training import (
    Contender,
    PairsTask,
    StepwiseTask,
    epoch_clock,
    make_config,
    make_eager_run,
    make_old_run,
    make_run,
)
from kytolly.search.text.rows import Ragged
from tests.helpers.cases import learning

PAIRS = {
    "source": Ragged.of([[4, 5, 6][: 1 + n % 3] for n in range(12)]),
    "target": Ragged.of([[7, 8, 9, 2][n % 2 :] for n in range(12)]),
}
CFG = make_config(True, xla=False, updates_per_call=2)


@pytest.mark.parametrize("kind", [learning(PairsTask), StepwiseTask])
def test_the_ways_to_train_make_updates(kind):
    task = kind(PAIRS, 12)
    run = make_run(task, CFG)
    assert {run(), run()} == {1, 2}  # of 3 batches, 2 at most in a call
    assert make_eager_run(task, CFG)() == 1


def test_the_old_way_learns():
    task = StepwiseTask(PAIRS, 12)
    cfg = make_config(True, xla=False, scheduled_sampling=0.0)
    networks, whole = [], task.make_network
    text_training.StepwiseTask.make_network = lambda self, cfg: (
        networks.append(whole(cfg)) or (networks[-1])
    )
    try:
        run = make_old_run(PAIRS, 12, cfg)
    finally:
        del text_training.StepwiseTask.make_network
    before = networks[0].get_weights()
    assert run() == 1
    changed = [np.abs(a - b).max() for a, b in zip(before, networks[0].get_weights(), strict=True)]
    assert max(changed) > 0.0


def test_without_own_guesses_a_draw_per_step_has_the_same_loss():
    import tensorflow as tf

    cfg = make_config(True, scheduled_sampling=0.0, dropout=0.0)
    usual, stepwise = PairsTask(PAIRS, 12), StepwiseTask(PAIRS, 12)
    network = usual.make_network(cfg)
    batch = {**usual.make_rows(cfg).example(), "seed": tf.constant([[1, 2]])}
    losses = [float(task.loss(network, batch, cfg)[0]) for task in (usual, stepwise)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_an_epoch_has_each_bucket_as_often_as_it_has_batches(monkeypatch):
    seconds = {"short": 1.0, "long": 5.0}

    def clock(run, least):
        return text_training.Clock(seconds[run], 2 * seconds[run])

    monkeypatch.setattr(text_training, "seconds_per_update", clock)
    assert epoch_clock(Contender("", ["short", "long"], [3.0, 1.0]), 1) == (2.0, 4.0)


def test_another_library_gets_what_it_needs_to_compute_the_same_loss(tmp_path):
    buckets, padding = text_training.make_buckets(PAIRS, CFG, 2)
    assert padding < 0.3 and sum(bucket.batches for bucket in buckets) >= 3
    loss = text_training.export(buckets, 12, CFG, str(tmp_path / "a.npz"))
    saved = np.load(tmp_path / "a.npz")
    assert float(saved["loss"]) == pytest.approx(loss) and loss == pytest.approx(np.log(12), abs=1)
    assert saved["source_0"].shape[:2] == (text_training.EXPORTED, CFG.batch_size)
    count = sum(name.startswith("weight_") for name in saved)
    assert count == torch_rewriter.WEIGHTS
    assert saved["weight_00"].shape == (12,) and saved["weight_01"].shape == (12, 256)


def ran(name, cpu, wall, padding=0.0):
    return {"name": name, "cpu_seconds": cpu, "wall_seconds": wall, "padding_share": padding}


def test_the_table_has_the_ratios_of_both_clocks(monkeypatch):
    others = [ran(name, 2.0, 3.0) for name in text.MEASURES]
    ours = {
        "pairs": 9, "words": 12,
        "epoch": {"tokens_per_update": 100.0,
                  "contenders": [ran("4 buckets", 0.5, 1.0, 0.1),
                                 ran("one length", 1.0, 3.0, 0.5), ran("old way", 2.0, 8.0)]},
        "bucket": {"tokens_per_update": 50.0, "contenders": [ran("as it is", 1.0, 1.0), *others]},
    }  # fmt: skip
    called = []

    def run(module, arguments, core, environ):
        called.append(arguments)
        if module == text.TORCH:
            if "--compiled" in arguments:
                raise ChildFailed("no compiler")
            return ran("PyTorch", 0.75, 2.0)
        return ours

    monkeypatch.setattr(text, "run_module", run)
    monkeypatch.setattr(text.Contender, "why_absent", lambda self: "")
    report = text.text(Options(repeats=2, quick=True), Watch(progress_display()))
    rows = {row[0].split(":")[0]: row[1:] for row in report.rows}
    assert rows["everything"] == ["200", "50", "4.00x", "8.00x"]
    assert rows["bucketing"] == ["200", "100", "2.00x", "3.00x"]
    assert rows["tables"] == ["50", "25", "2.00x", "3.00x"]
    assert rows["accumulation"] == ["25", "50", "0.50x", "0.33x"]  # it costs
    assert rows["Kytolly / PyTorch"] == ["200", "133", "1.50x", "2.00x"]
    assert "PyTorch, compiled: failed: no compiler." in report.notes
    assert called[0] == ["--collection", "builtin", "--quick", "--repeats", "2"]
    assert json.dumps(report.data)


def test_without_pytorch_its_rows_are_missing_and_say_so(monkeypatch):
    monkeypatch.setattr(text, "run_module", lambda *_: {})
    monkeypatch.setattr(text.Contender, "why_absent", lambda self: "install it")
    found, absent = text.torch_runs([], Options(), None, Watch(progress_display()))
    assert found == [] and absent == dict.fromkeys(["PyTorch", "PyTorch, compiled"], "install it")
