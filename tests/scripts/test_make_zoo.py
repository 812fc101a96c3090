import json
from pathlib import Path

import pytest

from scripts import make_zoo

ROOT = Path(__file__).parents[2]
RESULT = {
    "algorithm": "ppo",
    "environment": "CartPole-v1",
    "loop": "device",
    "seed": 3,
    "env_steps": 1_024,
    "updates": 80,
    "wall_seconds": 9.0,
    "evaluation": {"episodes": 100, "return_mean": 50.0, "return_std": 20.0, "length_mean": 50.0},
    "stopped_by": "total_env_steps",
    "run_dir": "/home/somebody/runs/a",
    "memory": {"process_memory_mb": 800.0},
}


def test_the_results_have_every_task_with_its_length():
    text = (ROOT / "docs" / "results.md").read_text()
    text = text.partition("## Learning")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("|")]
    words = {"Double DQN": "DDQN", "Double DQN, dueling": "DQN"}
    found = {}
    for algorithm, task, env_steps in rows[2:]:
        name = words.get(algorithm.strip(), algorithm.strip())
        found.setdefault(f"{name}/{task.partition(',')[0].strip()}", env_steps.strip())
    assert {name: f"{task.length():,}" for name, task in make_zoo.TASKS.items()} == {
        name: found.get(name) for name in make_zoo.TASKS
    }


def test_a_result_keeps_nothing_of_the_machine_and_gets_an_interval():
    kept = make_zoo.zoo_result_of(RESULT)
    assert not {"wall_seconds", "run_dir", "memory"} & set(kept)
    # 50 -+ 1.96 x 20 / root of 100
    assert kept["evaluation"]["return_interval"] == pytest.approx([46.08, 53.92])
    assert kept["env_steps"] == 1_024 and kept["evaluation"]["return_mean"] == 50.0


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """An empty zoo, a page, and in `runs` a run of PPO on CartPole that has ended."""
    monkeypatch.setattr("kytolly.deployment.zoo.zoo_dir", lambda: tmp_path / "zoo")
    monkeypatch.setattr(make_zoo, "zoo_dir", lambda: tmp_path / "zoo")
    monkeypatch.setattr(make_zoo, "PAGE", tmp_path / "zoo.md")
    (tmp_path / "zoo.md").write_text(f"# A\n\n{make_zoo.BEGIN}\nold\n{make_zoo.END}\n\nEnd.\n")
    run_dir = tmp_path / "runs" / "PPO_CartPole-v1"
    run_dir.mkdir(parents=True)
    (run_dir / "result.json").write_text(json.dumps(RESULT))
    (run_dir / "best.keras").write_bytes(b"." * 2_000)
    (run_dir / "config.yaml").write_text("environment: CartPole-v1\n")
    (run_dir / "metrics.csv").write_text("a\n")
    return tmp_path


def test_a_run_that_has_ended_is_kept_without_training_and_only_once(zoo, capsys):
    words = ["--only", "ppo/cartpole-V1", "--runs", str(zoo / "runs")]
    assert make_zoo.main(words) == 0
    folder = zoo / "zoo" / "PPO" / "CartPole-v1"
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "best.keras", "result.json"}
    page = (zoo / "zoo.md").read_text()
    row = "| `zoo:PPO/CartPole-v1` | 1,024 | 3 | 50.0 | 46.1 to 53.9 | 2 kB |"
    assert row in page and "old" not in page
    assert page.startswith("# A\n\n") and page.endswith(f"\n{make_zoo.END}\n\nEnd.\n")
    assert "PPO/CartPole-v1: return 50.0, 95% interval 46.1 to 53.9" in capsys.readouterr().err
    (folder / "result.json").write_text(json.dumps(make_zoo.zoo_result_of(RESULT | {"seed": 7})))
    assert make_zoo.main(words) == 0
    assert "PPO/CartPole-v1 is in the zoo" in capsys.readouterr().err
    assert '"seed": 7' in (folder / "result.json").read_text()


def test_a_run_that_was_stopped_goes_on(tmp_path):
    new = make_zoo.training_words("DDQN/Acrobot-v1", 4, tmp_path)
    assert new[:5] == ["train", "ddqn", "--env", "Acrobot-v1", "--tuned"]
    assert new[new.index("--seed") + 1] == "4"
    assert new[new.index("--total-env-steps") + 1] == "100000"
    (tmp_path / "config.yaml").write_text("")
    stopped = make_zoo.training_words("DDQN/Acrobot-v1", 4, tmp_path)
    assert stopped == ["train", "ddqn", "--resume", str(tmp_path), "--json"]


def test_a_training_that_fails_leaves_no_run(zoo, monkeypatch, capsys):
    monkeypatch.setattr(make_zoo, "training_words", lambda *given: ["train", "nothing"])
    assert make_zoo.main(["--only", "DQN/CartPole-v1", "--runs", str(zoo / "none")]) == 1
    assert "DQN/CartPole-v1 failed" in capsys.readouterr().err
    assert not (zoo / "zoo").exists()


def test_an_unknown_task_is_refused(capsys):
    assert make_zoo.main(["--only", "PPO/CartPol-v1"]) == 2
    assert "Did you mean 'PPO/CartPole-v1'?" in capsys.readouterr().err
