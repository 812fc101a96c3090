import importlib.util
import json
import math
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kytolly
from kytolly.command import entry
from kytolly.config.files import read_settings
from kytolly.deployment.initial_weights import resolve_init_run
from kytolly.deployment.zoo import FILES, run_path, zoo_dir, zoo_names, zoo_result
from kytolly.environment.gym.adapter import make_host_env
from scripts.make_zoo import BEGIN, END, TASKS, zoo_table

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
EPISODES, STATED_EPISODES = 20, 100
MAX_BYTES = 1_000_000


def test_there_are_runs():
    assert {"DQN/CartPole-v1", "PPO/CartPole-v1"} <= set(zoo_names()) <= set(TASKS)


PLAYED = ("DQN/CartPole-v1", "PPO/CartPole-v1", "PPO/Pendulum-v1")
OTHERS = [name for name in zoo_names() if name not in PLAYED]


@pytest.mark.parametrize(
    "name", [*PLAYED, *(pytest.param(name, marks=pytest.mark.learning) for name in OTHERS)]
)
def test_a_run_plays_as_well_as_it_states(name):
    task, stated = TASKS[name], zoo_result(name)["evaluation"]
    if task.needs and importlib.util.find_spec(task.needs[0]) is None:
        pytest.skip(f"needs {task.needs[1]}")
    assert stated["episodes"] == STATED_EPISODES
    found = np.mean(played_returns(kytolly.load(f"zoo:{name}"), task.env))
    low, high = stated["return_interval"]
    # The interval is 1.96 standard errors of 100 episodes on each side. The error of 20 episodes
    # is the root of 5 as large; 4 of both together are almost never exceeded.
    error = (high - low) / 2 / 1.96 * math.sqrt(1 + STATED_EPISODES / EPISODES)
    assert abs(found - stated["return_mean"]) < 4 * error + 0.01 * abs(stated["return_mean"])


def played_returns(agent, env):
    """The return of the first episode in each of `EPISODES` environments."""
    host, found = make_host_env(env, EPISODES, seed=12), {}
    obs = host.reset()
    while len(found) < EPISODES:
        step = host.step(agent.act(obs))
        obs = step.obs
        for index in np.flatnonzero(step.ended):
            found.setdefault(index, step.episode_return[index])
    host.close()
    return list(found.values())


@pytest.mark.parametrize("name", zoo_names())
def test_a_run_holds_three_small_files_and_nothing_of_a_machine(name):
    folder, task = zoo_dir() / name, TASKS[name]
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert sum(path.stat().st_size for path in folder.iterdir()) < MAX_BYTES
    settings, beside = read_settings(folder / "config.yaml")
    result = zoo_result(name)
    for facts in (settings | beside, result):
        assert (facts["algorithm"], facts["environment"]) == (task.algorithm, task.env)
    assert result["seed"] == settings["seed"]
    assert task.length() <= result["env_steps"] < 1.1 * task.length()
    for file in ("config.yaml", "result.json"):
        text = re.sub("env_timeout_seconds|max_wall_seconds", "", (folder / file).read_text())
        assert not re.search("/|seconds|_memory|_dir", text), file
    with zipfile.ZipFile(folder / "best.keras") as parts:
        assert b"optimizer" not in parts.read("model.weights.h5")
        assert not json.loads(parts.read("config.json")).get("compile_config")


def test_a_name_is_found_whatever_its_letters_and_a_path_stays_a_path(tmp_path):
    assert run_path("zoo:ppo/cartPOLE-v1") == zoo_dir() / "PPO" / "CartPole-v1"
    assert resolve_init_run("zoo:ppo/CartPole-v1", None, False) == zoo_dir() / "PPO/CartPole-v1"
    assert run_path("runs/zoo:a") == Path("runs/zoo:a") and run_path(tmp_path) == tmp_path


@pytest.mark.parametrize(
    "name, words",
    [
        ("zoo:ppo/CartPol-v1", "Did you mean 'zoo:PPO/CartPole-v1'?"),
        ("zoo:", "expected zoo: and one of DDQN/Acrobot-v1, "),
        ("zoo:../docs", "'zoo:../docs' is not in the zoo"),
    ],
)
def test_an_unknown_name_is_refused_with_those_there_are(name, words, capsys):
    with pytest.raises(ValueError, match=re.escape(words)):
        kytolly.load(name)
    assert entry.main(["evaluate", name]) == 2
    assert words in capsys.readouterr().err


def test_the_page_has_the_table_that_the_files_make():
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert table.strip().splitlines() == zoo_table(), "python scripts/make_zoo.py"


@pytest.mark.parametrize("seeds", [[], ["--seeds", "0,1"]], ids=["one", "seeds"])
def test_a_run_of_the_zoo_is_not_resumed_and_nothing_is_written_into_it(seeds, capsys, tmp_path):
    run = tmp_path / "CartPole-v1"
    shutil.copytree(zoo_dir() / "DQN" / "CartPole-v1", run)
    words = ["train", "dqn", "--env", "CartPole-v1", "--resume", str(run), *seeds]
    assert entry.main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in run.iterdir()) == sorted(FILES)
