from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NAME = "train_dqn_notebook"


@pytest.fixture
def repository(tmp_path):
    """The repository by links, so that what the notebook writes lands elsewhere."""
    for path in ROOT.iterdir():
        if path.name != "runs" and not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "notebooks").unlink()
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def notebook():
    return nbformat.read(ROOT / "notebooks" / f"{NAME}.ipynb", as_version=4)


def test_the_pair_agrees_and_holds_no_output():
    source = jupytext.read(ROOT / "notebooks" / f"{NAME}.py")
    made = notebook()
    assert [(c.cell_type, c.source) for c in made.cells] == [
        (c.cell_type, c.source) for c in source.cells
    ], "run: jupytext --sync notebooks/train_dqn_notebook.py"
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)


def test_it_runs_from_its_folder_and_draws(repository):
    made = notebook()
    (parameters,) = (c for c in made.cells if "parameters" in c.metadata.get("tags", []))
    parameters.source += "\ntotal_env_steps = 3_000"
    folder = {"metadata": {"path": str(repository / "notebooks")}}
    NotebookClient(made, timeout=120, kernel_name="python3", resources=folder).execute()
    outputs = [output for c in made.cells if c.cell_type == "code" for output in c.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    (run,) = (repository / "notebooks" / "runs").iterdir()
    assert (run / "result.json").is_file()
