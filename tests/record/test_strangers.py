"""Run folders that strangers altered: each works, or is refused in one line; nothing is run."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import keras
import pytest

from kytolly.callback.base import Evaluation
from kytolly.callback.tensorboard import keep_events
from kytolly.experiment.processes import ChildRun
from kytolly.loop.session_state import read_session_state
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.record.checkpoint import prune, read_manifest, save_network
from kytolly.record.files import write_text
from kytolly.record.metrics_file import MetricsFile, read_rows
from kytolly.record.network_file import load_network, weights_in
from kytolly.record.run_folder import RunFolder
from kytolly.record.saved_run import SavedRun

ROOT = Path(__file__).parents[2]
MAX_MEGABYTES = 1_500
SCRIPT = Path(__file__).with_name("stranger_runs.py")


def played(folder, kind, cases, script=SCRIPT):
    done = subprocess.run(
        [sys.executable, script, folder, kind, "0", cases],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_refused_or_works(case):
    lines = case["err"].strip().splitlines()
    if "training ended, but not all of run was written" in case["err"]:  # a folder for a file
        case = {**case, "status": case["status"] - 1}
    if case["status"] not in (0, 2) or case["left"] or case["megabytes"] > MAX_MEGABYTES:
        return False
    if case["status"] == 2 and (case["out"] or not lines):
        return False
    if "CartPole-v1: 100 of 160" in case["err"] and "from the previous checkpoint" not in lines[0]:
        return False
    lines = [line for line in lines if not line.startswith("CartPole-v1: ")]  # progress
    ours = [line for line in lines if line.startswith("kytolly: ") and len(line) < 1_200]
    return len(ours) == len(lines) <= 3 and "nan" not in case["out"].lower()


@pytest.mark.learning
@pytest.mark.parametrize(
    "kind, cases",
    [("dqn-device", 120), ("ppo-device", 80), ("ppo-host", 80)],
)
def test_any_run_folder_works_or_is_refused_in_one_line(kind, cases, tmp_path):
    check_cases(played(tmp_path / "cases", kind, str(cases)), cases)


def check_cases(found, cases):
    """Each case works or is refused, and there are enough of both."""
    assert len(found) == cases
    assert not [case for case in found if not is_refused_or_works(case)]
    refused = sum(case["status"] == 2 for case in found)
    assert cases // 10 < refused < cases - cases // 10, refused


@pytest.mark.parametrize(
    "files",
    [
        {"best-/../../outside": "0"},
        {"ckpt-1/../../x.index": "0"},
        {"../best-1.keras": "0"},
        {"/tmp/best-1.keras": "0"},
        {"": "0"},
        [[1, 2]],
        [],
        "ab",
        None,
    ],
)
def test_a_list_of_checksums_names_files_of_its_folder_only(files, tmp_path):
    (tmp_path / "ckpt-8.json").write_text(json.dumps({"files": files, "host_state": {}}))
    if files == []:
        assert read_manifest(str(tmp_path / "ckpt-8")) == ({}, {})
        return
    with pytest.raises(OSError, match=r"ckpt-8.json is no list of checksums"):
        read_manifest(str(tmp_path / "ckpt-8"))


def test_a_deep_list_of_checksums_is_damaged(tmp_path):
    (tmp_path / "ckpt-8.json").write_text("[" * 100_000)
    with pytest.raises(OSError, match="no list of checksums"):
        read_manifest(str(tmp_path / "ckpt-8"))


def change(path, kind=zipfile.ZIP_STORED, **changes):
    """Write a network's file again, with other numbers in its configuration."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    config["build_config"].update(changes.pop("build", {}))
    config["config"].update(changes)
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


LAYER = {"class_name": "Dense", "module": "keras.layers", "config": {"units": 10**9}}
CODE = {"class_name": "__lambda__", "config": {"value": ["YQ==", None, None]}}
IMPORT = {"class_name": "Env", "module": "evil", "registered_name": None, "config": {}}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"hidden_units": [10**9]}, "its layers need"),
        ({"hidden_units": [30_000, 30_000]}, "its layers need"),
        ({"num_actions": 10**12}, "its layers need"),
        ({"build": {"input_shape": [None, 10**9]}}, "its layers need"),
        ({"torso": LAYER}, "its layers need"),
        ({"kind": zipfile.ZIP_DEFLATED}, "unpacks to"),
        ({"hidden_units": "xx"}, "cannot be loaded"),
        ({"torso": CODE}, "lambda"),
        ({"torso": IMPORT}, "could not be deserialized"),
        ({"name": "n" * 50_000}, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_network_larger_than_its_file_or_with_code_is_refused(
    changes, words, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    network = DQNMLP(2, (8,))
    network.build((None, 4))
    path = save_network(network, tmp_path)
    assert load_network(path).num_actions == 2
    change(path, **changes)
    if not words:
        assert load_network(path).name == changes["name"]
        return
    with pytest.raises(ValueError) as refusal:
        load_network(path)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


BOMBS = {
    "embedding": (keras.Input([4]), keras.layers.Embedding(10, 2), {"input_dim": 10**9}),
    "bias": (keras.Input([4]), keras.layers.Dense(2), {"units": 10**9}),
    "convolution": (
        keras.Input([8, 8, 4]),
        keras.layers.Conv2D(4, 3, padding="same"),
        {"kernel_size": [10**4] * 2},
    ),
    "LSTM": (keras.Input([4, 3]), keras.layers.LSTM(2), {"units": 10**5}),
    "EinsumDense": (
        keras.Input([4, 3]),
        keras.layers.EinsumDense("abc,cd->abd", output_shape=[None, 5]),
        {"output_shape": [None, 10**9]},
    ),
    "repeat": (keras.Input([3]), keras.layers.RepeatVector(2), {"n": 10**9}),
    "padding": (keras.Input([3, 3]), keras.layers.ZeroPadding1D(1), {"padding": [10**9, 1]}),
    "state": (keras.Input([4, 3]), keras.layers.LSTM(2), {"stateful": True}),
}


def write_network(path, parts, change):
    """Write a network's parts as a `.keras` file, after a change of the configuration."""
    config = json.loads(parts["config.json"])
    change(config)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {**parts, "config.json": json.dumps(config)}.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("kind", BOMBS)
def test_no_layer_makes_more_weights_than_the_file_holds(kind, tmp_path):
    inputs, layer, changes = BOMBS[kind]
    path = save_network(keras.Sequential([inputs, layer]), tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    write_network(
        path, parts, lambda config: config["config"]["layers"][1]["config"].update(changes)
    )
    with pytest.raises(ValueError, match=r"its layers? (need|.* makes)|is stateful") as refusal:
        load_network(path)
    assert "\n" not in str(refusal.value)


def test_a_network_that_makes_its_weights_later_is_refused(tmp_path):
    path = save_network(keras.Sequential([keras.layers.Embedding(10, 2)]), tmp_path)
    with pytest.raises(ValueError, match="does not say for which inputs"):
        load_network(path)


@pytest.mark.parametrize("name", ["best.keras", "best.weights.h5"])
def test_weights_that_are_only_declared_are_refused(name, tmp_path):
    network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    path, weights = tmp_path / name, tmp_path / "weights.h5"
    with h5py.File(weights, "w") as file:
        file.create_dataset("layers/dense/vars/0", [10**6], "f4", compression="gzip")[:] = 0
    if path.suffix == ".keras":
        network.save(path)
        with zipfile.ZipFile(path) as archive:
            parts = {one: archive.read(one) for one in archive.namelist()}
        parts["model.weights.h5"] = weights.read_bytes()
        write_network(path, parts, lambda config: None)
        with pytest.raises(ValueError, match="unpacks to 4,000,000 bytes"):
            load_network(path)
    else:
        weights.rename(path)
    with pytest.raises(ValueError, match="unpacks to 4,000,000 bytes"):
        weights_in(network, path)


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\x89HDF\r\n\x1a\n" + b"\xff" * 99])
@pytest.mark.parametrize("name", ["best-8.keras", "best-8.weights.h5"])
def test_what_holds_no_weights_is_refused_and_the_network_stays(name, content, tmp_path):
    network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    before = network.get_weights()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} holds no weights of this run's network") as one:
        weights_in(network, tmp_path / name)
    assert "\n" not in str(one.value)
    assert all((a == b).all() for a, b in zip(before, network.get_weights(), strict=True))


SAVED = {
    "interval_end": 40,
    "last_evaluation": 40,
    "wall_seconds": 1.5,
    "steady": [1.0, 2.0, 40],
    "best_return": float("-inf"),
    "evaluation": None,
    "metrics": {"loss": float("nan")},
    "sums": None,
    "history": [{"env_steps": 20, "loss": 0.5}],
    "callbacks": [["CSVLog", {"rows": 1}]],
}


@pytest.mark.parametrize(
    "changes",
    [
        {"interval_end": -2},
        {"interval_end": "40"},
        {"interval_end": 10**400},
        {"wall_seconds": None},
        {"steady": [1.0]},
        {"best_return": "high"},
        {"evaluation": {"episodes": 1}},
        {"metrics": [1]},
        {"metrics": {"loss": 10**400}},
        {"sums": []},
        {"sums": [["O", [1]]] * 6},
        {"sums": [["<f4", "a"]] * 6},
        {"history": [3]},
        {"callbacks": [["CSVLog"]]},
        {"callbacks": None},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_state_that_no_session_wrote_is_refused(changes):
    with pytest.raises(ValueError, match="does not hold the state of a run") as refusal:
        read_session_state({**SAVED, **changes}, Evaluation)
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "env_steps\0,b\n1,2\n", "x" * 200_000 + "\n1\n"])
def test_what_is_no_file_of_metrics_is_refused(text, tmp_path):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(ValueError, match="field limit" if len(text) > 99 else "env_steps|NUL"):
        read_rows(tmp_path / "metrics.csv")


def test_a_long_cell_below_a_good_head_is_what_the_message_names(tmp_path):
    (tmp_path / "metrics.csv").write_text(f"env_steps,loss\n20,1\n40,{'x' * 300_000}\n")
    with pytest.raises(ValueError, match="field limit"):
        read_rows(tmp_path / "metrics.csv")


def test_metrics_larger_than_any_run_writes_are_not_read(tmp_path):
    with (tmp_path / "metrics.csv").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="more than 268,435,456 bytes"):
        read_rows(tmp_path / "metrics.csv")


def test_rows_without_a_number_are_left_out(tmp_path):
    (tmp_path / "metrics.csv").write_text("env_steps,loss\n\u00b2,1\n20,2\n\u0663,3\n9e9,4\n")
    assert [row["loss"] for row in read_rows(tmp_path / "metrics.csv")] == ["2"]


@pytest.fixture
def outside(tmp_path):
    """A file that links lead to; it must stay as it is."""
    path = tmp_path / "outside"
    path.write_text("env_steps,loss\n20,1\n")
    yield path
    assert path.read_text() == "env_steps,loss\n20,1\n"


@pytest.mark.parametrize(
    "name",
    [".lock", ".partial-metrics.csv", "metrics.csv", "events.out.tfevents.1.host.1.0.v2"]
    + ["learning_curve.png", "checkpoints/ckpt-8.index", "checkpoints/.partial-ckpt-8.json"]
    + ["checkpoints", "seed-1", "seed-1.log", "odd"],
)
def test_a_folder_with_a_link_is_not_trained_in(name, outside, tmp_path):
    (run := tmp_path / "run").mkdir()
    (run / "checkpoints").mkdir()
    (run / "config.yaml").touch()
    if name == "checkpoints":
        (run / name).rmdir()
    (run / name).symlink_to(outside)
    with pytest.raises(ValueError, match=f"{name} is a link"):
        RunFolder(SavedRun.existing(run).path).lock_folder()


@pytest.mark.parametrize("target", ["outside", "nowhere"])
def test_a_file_that_became_a_link_is_not_written_through(target, outside, tmp_path):
    (run := tmp_path / "run").mkdir()
    file = MetricsFile(run)
    file.append({"env_steps": 10})
    event = run / "events.out.tfevents.1.host.1.0.v2"
    for path in (run / "metrics.csv", event, tmp_path / "run.log"):
        path.unlink(missing_ok=True)
        path.symlink_to(tmp_path / target)
    child = ChildRun("seed 1", run, ["--version"])
    writes = [lambda: file.append({"env_steps": 20}), lambda: child.start(1)]
    if target == "outside":
        writes.append(lambda: keep_events(run, {event.name: 1}))
    for write in writes:
        with pytest.raises(OSError, match=r"metrics.csv|run.log|events"):
            write()
    assert not (tmp_path / "nowhere").exists()


def test_a_pipe_is_no_log_and_nobody_waits_for_a_reader(tmp_path):
    os.mkfifo(tmp_path / "run.log")
    with pytest.raises(OSError, match=r"run.log"):
        ChildRun("seed 1", tmp_path / "run", ["--version"]).start(1)


def test_what_is_half_written_is_no_way_out(outside, tmp_path):
    (tmp_path / ".partial-a.txt").symlink_to(outside)
    write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "outside"]


def test_only_what_a_checkpoint_consists_of_is_removed(outside, tmp_path):
    (folder := tmp_path / "checkpoints").mkdir()
    own = ["ckpt-11.json", "ckpt-11.index", "ckpt-11.data-00000-of-00001", "best-8.keras"]
    own += ["best-9.weights.h5", ".partial-ckpt-9.json", ".partial-checkpoint"]
    own += ["ckpt-9.index.tempstate123"]
    kept = ["best-of-all.txt", "ckpt-8.zip", ".partial-thesis.doc", "ckpt-8-copy", "notes"]
    kept += ["best-8.keras.backup", "ckpt-9_temporary"]
    for name in (*own, *kept):
        (folder / name).write_text("")
    (folder / "ckpt-7_temp").mkdir()
    (folder / "ckpt-7.index").symlink_to(outside)
    (folder / "ckpt-6_temp").symlink_to(tmp_path, target_is_directory=True)
    prune(folder, 10, 1)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*kept, "checkpoint"])
