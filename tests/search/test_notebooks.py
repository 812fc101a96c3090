import pytest

from tests.test_notebook import check_pair, check_run, link_repository

PICTURES = {"query_reformulation_notebook": 3, "search_notebook": 1}
RUNS = {"query_reformulation_notebook": 1, "search_notebook": 3}
SHORT = {
    "query_reformulation_notebook": "epochs = warm_start_epochs = 1\n"
    "feedback_documents, candidates, max_terms = 3, 8, 2",
    "search_notebook": "test_queries, top, candidates = 20, 5, 8\n"
    "rewriter_options |= dict(total_updates=2, units=8, vocabulary_size=200)\n"
    "agent_options |= dict(epochs=0, warm_start_epochs=1, max_queries=40)\n"
    "ranker_options |= dict(samples=16, width=8, layers=1, heads=2, dev_queries=4)",
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_pair_agrees_and_shows_its_pictures(name):
    text = check_pair(name, PICTURES[name])
    assert "from kytolly." not in text.replace("from kytolly.search import", "")


@pytest.mark.learning
@pytest.mark.parametrize("name", PICTURES)
def test_it_runs_from_its_folder_and_draws(name, tmp_path):
    check_run(link_repository(tmp_path), name, SHORT[name], PICTURES[name], RUNS[name])
