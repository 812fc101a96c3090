"""`--on`: seeds and trials on the nodes of a Ray cluster, here two of one core on this machine."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from kytolly.machine.cluster import Node, import_ray, refuse_other_versions
from kytolly.machine.doctor import check_cluster
from kytolly.machine.hardware import usable_cores
from tests.helpers.cases import rest_learning
from tests.helpers.commands import SHORT_PPO, kytolly
from tests.helpers.ray_processes import ray_processes

if importlib.util.find_spec("ray") is None:
    pytest.skip('pip install "kytolly[cluster]"', allow_module_level=True)
ray = import_ray()
TRAIN = ["train", "ppo", "--env", "CartPole-v1", *SHORT_PPO, "--json"]
LONG = [*TRAIN[:4], "--num-envs", "4", "--rollout-steps", "25", "--hidden-units", "4", "--no-xla"]
LONG += ["--total-env-steps", "60000", "--checkpoint-interval-env-steps", "3000"]
LONG += ["--evaluation-interval-env-steps", "60000", "--seeds", "0-1", "--json"]
MINUTES = 3 * 60
APART = ["--apart", "--jobs", str(usable_cores())]  # one thread each, as a node's one core gives


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    nodes.second = nodes.add_node(num_cpus=1, num_gpus=0)
    yield nodes
    nodes.shutdown()


def tensors(run_dir):
    """The bytes of the tensors of a run's checkpoints, by name.

    The names of layers are left out: Keras counts them, and a population that resumes makes others.
    """
    found = []
    for index in sorted((Path(run_dir) / "checkpoints").glob("ckpt-*.index")):
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        names = sorted(set(reader.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"})
        found.append((index.name, [(n, np.asarray(reader.get_tensor(n)).tobytes()) for n in names]))
    return found


@pytest.mark.parametrize(
    ("seeds", "here", "there"),
    rest_learning(
        [
            ("0-1", APART, ["--apart"]),
            ("0-1", ["--jobs", "2"], []),
            ("0-3", ["--jobs", "2"], []),
            ("0-7", APART, ["--apart"]),
        ],
        [("0-1", ["--jobs", "2"], [])],
    ),
)
def test_seeds_on_two_nodes_are_those_without_a_cluster(seeds, here, there, cluster, tmp_path):
    words = [*TRAIN, "--seeds", seeds]
    far = kytolly(*words, *there, "--log-dir", "there", "--on", cluster.address, cwd=tmp_path)
    assert far.status == 0, far.errors
    assert "cluster of 2 nodes, room for 2 runs" in far.errors
    assert ("together, in 2 programs" in far.errors) == (not there)
    near = kytolly(*words, *here, "--log-dir", "here", cwd=tmp_path)
    assert json.loads(near.out)["best"] == json.loads(far.out)["best"]
    for seed in range(int(seeds[-1]) + 1):
        home = tmp_path / f"there/seed-{seed}"
        assert tensors(home) == tensors(tmp_path / f"here/seed-{seed}") != []
        # The paths in what came home are those of the driver.
        assert json.loads((home / "result.json").read_text())["run_dir"] == f"there/seed-{seed}"


@pytest.mark.learning
def test_on_a_shared_disk_runs_are_written_where_they_stay(cluster, tmp_path):
    on = ["--on", cluster.address, "--cluster-dir", "disk"]
    outside = kytolly(*TRAIN, "--seeds", "0-1", "--log-dir", "g", *on, cwd=tmp_path)
    assert outside.status == 2 and "is not in the folder" in outside.errors
    inside = kytolly(*TRAIN, "--seeds", "0-1", *on, cwd=tmp_path)
    assert inside.status == 0, inside.errors
    found = json.loads(inside.out)
    assert found["run_dir"].startswith("disk/CartPole-v1_ppo_seeds_")
    # What a node writes itself: the run's own path, which is absolute.
    for run in found["runs"]:
        home = tmp_path / run["run_dir"]
        assert json.loads((home / "result.json").read_text())["run_dir"] == str(home)


@pytest.mark.learning
def test_trials_train_on_the_nodes(cluster, tmp_path):
    pytest.importorskip("optuna")
    words = ["tune", *TRAIN[1:], "--study", "s.db", "--trials", "2", "--on", cluster.address]
    run = kytolly(*words, cwd=tmp_path)
    assert run.status == 0, run.errors
    trials = json.loads(run.out)["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 2
    assert (tmp_path / "s/trial-1/result.json").exists()


@pytest.mark.learning
def test_populations_of_a_sweep_and_of_trials_train_on_the_nodes(cluster, tmp_path):
    pytest.importorskip("optuna")
    sweep = ["sweep", *TRAIN[1:], "--set", "learning_rate=1e-3,1e-4", "--seeds", "0-1"]
    far = kytolly(*sweep, "--log-dir", "far", "--on", cluster.address, cwd=tmp_path)
    assert far.status == 0, far.errors
    assert "together, in one program and 2 populations" in far.errors
    near = kytolly(*sweep, "--log-dir", "near", cwd=tmp_path)
    assert near.status == 0, near.errors
    runs = [path.relative_to(tmp_path / "near") for path in tmp_path.glob("near/*/seed-*/")]
    assert len(runs) == 4
    for run in runs:
        assert tensors(tmp_path / "far" / run) == tensors(tmp_path / "near" / run) != []
    words = ["tune", *TRAIN[1:], "--together", "--jobs", "2", "--trials", "4", "--study"]
    run = kytolly(*words, "s.db", "--on", cluster.address, cwd=tmp_path)
    assert run.status == 0, run.errors
    states = [trial["state"] for trial in json.loads(run.out)["trials"]]
    assert len(states) == 4 and set(states) <= {"complete", "pruned"} and "complete" in states


PBT = ["train", "ppo", "--env", "CartPole-v1", "--loop", "host", *LONG[4:-3], "--json"]
PBT += ["--pbt", "--population", "3", "--interval", "8000"]
PBT[PBT.index("--evaluation-interval-env-steps") + 1] = "8000"
PBT[PBT.index("--total-env-steps") + 1] = "24000"


@pytest.fixture(scope="module")
def population_here(tmp_path_factory):
    """The folder of a population-based training by processes of this machine, and its result."""
    folder = tmp_path_factory.mktemp("here")
    done = kytolly(*PBT, "--jobs", "2", "--log-dir", "g", cwd=folder)
    assert done.status == 0, done.errors
    return folder / "g", json.loads(done.out)


@pytest.mark.learning
@pytest.mark.parametrize("dies", ["nothing", "run", "driver", "node"])
def test_population_based_training_is_the_same_on_any_nodes(
    dies, cluster, population_here, tmp_path
):
    on = ["--on", cluster.address]
    driver = start_driver([*PBT, "--log-dir", "far", *on], tmp_path)
    if dies != "nothing":
        wait_until(lambda: (tmp_path / "far/pbt.jsonl").is_file() and watching_processes())
        time.sleep(10.0)  # within the second round, wherever that is
    if dies == "run":
        os.kill(watching_processes()[0], signal.SIGKILL)
    elif dies == "node":
        cluster.remove_node(cluster.second, allow_graceful=False)
    elif dies == "driver":
        driver.kill()
        driver.communicate()
        driver = start_driver(["train", "ppo", "--pbt", "--resume", "far", "--json", *on], tmp_path)
    out, errors = driver.communicate(timeout=2 * MINUTES)
    if dies == "node":
        cluster.second = cluster.add_node(num_cpus=1, num_gpus=0)
    assert driver.returncode == 0, errors.decode()
    here, result = population_here
    assert json.loads(out)["schedules"] == result["schedules"]
    lines = [(folder / "pbt.jsonl").read_text() for folder in (tmp_path / "far", here)]
    assert lines[0] == lines[1] and lines[0].count("\n") == 2
    for member in range(3):
        homes = [folder / f"seed-{member}" for folder in (tmp_path / "far", here)]
        assert tensors(homes[0])[-1] == tensors(homes[1])[-1]


def test_doctor_names_the_nodes_and_an_address_that_does_not_answer(cluster):
    found = check_cluster(cluster.address)
    assert found.status == "ok" and found.finding.count("1 CPUs, 0 GPUs") == 2
    assert check_cluster("127.0.0.1:1").status == "fail"


@pytest.fixture(scope="module", params=[["--apart"], ["--together"]], ids=["apart", "together"])
def undisturbed(request, tmp_path_factory):
    """How two seeds train, and the newest tensors of those that nothing disturbed here."""
    folder = tmp_path_factory.mktemp("undisturbed")
    jobs = ["--jobs", str(usable_cores())]
    assert kytolly(*LONG, *request.param, *jobs, "--log-dir", "g", cwd=folder).status == 0
    return request.param, [tensors(folder / f"g/seed-{seed}")[-1] for seed in range(2)]


def start_driver(words, cwd):
    code = "from kytolly.command.entry import entry; entry()"
    words = [sys.executable, "-c", code, *words]
    return subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_until(happened):
    until = time.monotonic() + MINUTES
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.1)


def watching_processes():
    """The Ray processes that watch runs."""
    return ray_processes("NodeRun")


def test_one_process_of_ray_watches_one_run_after_the_other(cluster, tmp_path):
    words = [*TRAIN, "--seeds", "0-1", "--apart", "--jobs", "1", "--on", cluster.address]
    wait_until(lambda: not watching_processes())  # those of an earlier test end by themselves
    driver = start_driver(words, tmp_path)
    seen = set()
    while driver.poll() is None:
        seen |= set(watching_processes())
        time.sleep(0.05)
    out, errors = driver.communicate()
    assert driver.returncode == 0, errors.decode()
    assert len(json.loads(out)["runs"]) == 2 and len(seen) == 1


@pytest.mark.learning
@pytest.mark.parametrize("dies", ["run", "driver", "node"])
def test_what_dies_costs_what_came_after_the_newest_checkpoint(
    dies, cluster, undisturbed, tmp_path
):
    how, expected = undisturbed
    on, folder = ["--on", cluster.address], tmp_path / "g"
    driver = start_driver([*LONG, *how, "--log-dir", "g", *on], tmp_path)
    homes = [folder / f"seed-{seed}/checkpoints" for seed in range(2)]
    wait_until(lambda: all(any(home.glob("ckpt-*.json")) for home in homes))
    assert not any((home.parent / "result.json").exists() for home in homes)
    if dies == "run":
        os.kill(watching_processes()[0], signal.SIGKILL)
    elif dies == "node":
        cluster.remove_node(cluster.second, allow_graceful=False)
    else:
        driver.kill()
        driver.communicate()
        resumed = ["train", "ppo", "--resume", "g", "--seeds", "0-1", "--json", *on]
        driver = start_driver(resumed, tmp_path)
    out, errors = driver.communicate(timeout=MINUTES)
    if dies == "node":
        cluster.second = cluster.add_node(num_cpus=1, num_gpus=0)
    assert driver.returncode == 0, errors.decode()
    assert (b"goes on elsewhere" in errors) == (dies != "driver")
    newest = [tensors(folder / f"seed-{seed}")[-1] for seed in range(2)]
    assert newest == expected
    assert len(json.loads(out)["runs"]) == 2


def test_ctrl_c_stops_the_runs_and_brings_them_home(cluster, tmp_path):
    driver = start_driver([*LONG, "--log-dir", "g", "--on", cluster.address], tmp_path)
    home = tmp_path / "g/seed-0"
    wait_until(lambda: (home / "metrics.csv").exists())
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=MINUTES)
    assert driver.returncode == 130, errors.decode()
    assert b"0 of 2 seeds are done" in errors and b"Continue with" in errors
    assert any((home / "checkpoints").glob("ckpt-*.json"))  # saved when it was told to stop


def test_an_address_that_does_not_answer_is_said_at_once(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    words = [*TRAIN, "--seeds", "0-1", "--log-dir", "g", "--on", f"127.0.0.1:{port}"]
    run = kytolly(*words, cwd=tmp_path)
    line = run.errors.splitlines()[-1]
    assert run.status == 2
    assert "does not answer" in line and "ray start --head" in line
    assert time.monotonic() - began < 10 and not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--on", "ray"], "--on is for several runs"),
        (["--seeds", "0-1", "--run-gpus", "1"], "--run-gpus is for a cluster"),
        (
            ["--seeds", "0-1", "--on", "ray", "--together", "--loop", "host"],
            "expected runs that one program can train",
        ),
        (["--seeds", "0-1", "--on", "tcp://a"], "expected ray, ray://HOST:PORT or HOST:PORT"),
    ],
)
def test_options_that_mean_nothing_are_refused(words, message, tmp_path):
    run = kytolly(*TRAIN, *words, cwd=tmp_path)
    assert run.status == 2 and message in run.errors.splitlines()[-1]


def test_more_than_a_node_has_is_refused(cluster, tmp_path):
    words = [*TRAIN, "--seeds", "0-1", "--on", cluster.address, "--run-gpus", "1"]
    run = kytolly(*words, "--log-dir", "g", cwd=tmp_path)
    assert run.status == 2 and "no node has as much" in run.errors
    assert not (tmp_path / "g").exists()


def test_nodes_with_other_versions_are_named():
    here = {"python": "3.11.9", "kytolly": "0.4.0", "keras": "3.15.0"}
    same, keras = Node("a", 1, 0, 1, here), Node("b", 1, 0, 1, {**here, "keras": "3.14.0"})
    (line,) = refuse_other_versions([same, keras], here)
    assert "b has keras 3.14.0 (here 3.15.0)" in line
    for name, version in {"python": "3.12.1", "kytolly": "not installed"}.items():
        other = Node("c", 1, 0, 1, {**here, name: version})
        with pytest.raises(ValueError, match=rf"c has {name} {version}") as refused:
            refuse_other_versions([same, other], here)
        assert "a has" not in str(refused.value)
