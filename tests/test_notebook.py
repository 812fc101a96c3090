from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers.cases import rest_learning

ROOT = Path(__file__).parents[1]
PICTURES = {
    "train_dqn_notebook": 3,
    "train_ppo_notebook": 4,
    "memory_notebook": 3,
}
RUNS = {"memory_notebook": 2}  # where it is not one
SHORT = {
    "train_dqn_notebook": "total_env_steps = 2_000",
    "train_ppo_notebook": "total_env_steps = 4_096",
    "memory_notebook": "total_env_steps = 2_048",
}


def link_repository(tmp_path):
    """The repository by links, so that what the notebook writes lands elsewhere."""
    for path in ROOT.iterdir():
        if path.name != "runs" and not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "notebooks").unlink()
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def notebook(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def pictures(made):
    """The number of pictures that a notebook shows."""
    outputs = [output for c in made.cells if c.cell_type == "code" for output in c.outputs]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", PICTURES)
def test_the_pair_agrees_and_shows_its_pictures(name):
    text = check_pair(name, PICTURES[name])
    assert "from kytolly." not in text, "a notebook uses public names"


def check_pair(name, count):
    """The text of a notebook that agrees with its .py file and shows so many pictures."""
    source = jupytext.read(ROOT / "notebooks" / f"{name}.py")
    made = notebook(name)
    assert [(c.cell_type, c.source) for c in made.cells] == [
        (c.cell_type, c.source) for c in source.cells
    ], f"run: jupytext --sync notebooks/{name}.py"
    text = (ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert pictures(made) == count, f"run: jupyter execute --inplace notebooks/{name}.ipynb"
    assert "sys.path" not in text and str(Path.home()) not in text
    return text


@pytest.mark.parametrize(
    "name",
    rest_learning(PICTURES, ["train_dqn_notebook"]),
)
def test_it_runs_from_its_folder_and_draws(name, tmp_path):
    check_run(link_repository(tmp_path), name, SHORT[name], PICTURES[name], RUNS.get(name, 1))


def check_run(repository, name, short, count, runs=1):
    """A shortened notebook runs, draws so many pictures and leaves so many runs."""
    made = notebook(name)
    (parameters,) = (c for c in made.cells if "parameters" in c.metadata.get("tags", []))
    parameters.source += f"\n{short}"
    folder = {"metadata": {"path": str(repository / "notebooks")}}
    NotebookClient(made, timeout=600, kernel_name="python3", resources=folder).execute()
    assert pictures(made) == count
    found = list((repository / "notebooks" / "runs").iterdir())
    assert len(found) == runs
    assert all((run / "result.json").is_file() for run in found)
