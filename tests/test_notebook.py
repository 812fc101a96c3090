from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
PICTURES = {
    "train_dqn_notebook": 3,
    "train_ppo_notebook": 4,
    "query_reformulation_notebook": 3,
    "search_notebook": 1,
}
RUNS = {"search_notebook": 3}  # others make one
SHORT = {
    "train_dqn_notebook": "total_env_steps = 2_000",
    "train_ppo_notebook": "total_env_steps = 4_096",
    "query_reformulation_notebook": "epochs = warm_start_epochs = 1\n"
    "feedback_documents, candidates, max_terms = 3, 8, 2",
    "search_notebook": "test_queries, top, candidates = 20, 5, 8\n"
    "rewriter_options |= dict(total_updates=2, units=8, vocabulary_size=200)\n"
    "agent_options |= dict(epochs=0, warm_start_epochs=1, max_queries=40)\n"
    "ranker_options |= dict(samples=16, width=8, layers=1, heads=2, dev_queries=4)",
}


@pytest.fixture
def repository(tmp_path):
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
    source = jupytext.read(ROOT / "notebooks" / f"{name}.py")
    made = notebook(name)
    assert [(c.cell_type, c.source) for c in made.cells] == [
        (c.cell_type, c.source) for c in source.cells
    ], f"run: jupytext --sync notebooks/{name}.py"
    text = (ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert pictures(made) == PICTURES[name], (
        f"run: jupyter execute --inplace notebooks/{name}.ipynb"
    )
    assert "sys.path" not in text and str(Path.home()) not in text
    assert "from kytolly." not in text, "a notebook uses public names"


@pytest.mark.parametrize(
    "name",
    [
        "train_dqn_notebook",
        "train_ppo_notebook",
        pytest.param("query_reformulation_notebook", marks=pytest.mark.learning),
        pytest.param("search_notebook", marks=pytest.mark.learning),
    ],
)
def test_it_runs_from_its_folder_and_draws(name, repository):
    made = notebook(name)
    (parameters,) = (c for c in made.cells if "parameters" in c.metadata.get("tags", []))
    parameters.source += f"\n{SHORT[name]}"
    folder = {"metadata": {"path": str(repository / "notebooks")}}
    NotebookClient(made, timeout=600, kernel_name="python3", resources=folder).execute()
    assert pictures(made) == PICTURES[name]
    runs = list((repository / "notebooks" / "runs").iterdir())
    assert len(runs) == RUNS.get(name, 1)
    assert all((run / "result.json").is_file() for run in runs)
