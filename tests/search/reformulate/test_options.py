"""Options are read from their files, and unknown ones refused."""

import dataclasses

import pytest

from kytolly.search.reformulate.options import options_from, read_options, write_options
from kytolly.search.reformulate.ppo_training import resolved_options
from kytolly.search.reformulate.search import SearchContext, load_index
from tests.search.reformulate.tiny_collection import SETTINGS, make_options, write_collection


def test_options_come_back_from_their_file(tmp_path):
    options = make_options("somewhere", epochs=3)
    write_options(tmp_path / "o.yaml", options)
    assert read_options(tmp_path / "o.yaml") == options


def test_the_options_choose_the_tokenizer_and_a_run_finds_its_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_collection(tmp_path / "data")
    (tmp_path / "words.txt").write_text("noise1\n")
    rules = {"language": "german", "stop_words": "words.txt", "ngrams": 2}
    retrieval = {**SETTINGS["retrieval"], **rules}
    options = options_from({**SETTINGS, "retrieval": retrieval, "collection": "data"})
    context = SearchContext.load(options, ("train",))
    assert context.index.tokenizer("Häuser noise1 東京都") == ["haus", "東京", "京都"]
    assert "noise1" not in context.index.term_ids and "noise2" in context.index.term_ids
    context.index.save(tmp_path / "index.npz")
    again = load_index(tmp_path / "index.npz", context.collection, options.retrieval)
    assert again is not None and again.tokenizer.identity == context.index.tokenizer.identity
    english = dataclasses.replace(options.retrieval, language="english", ngrams=0)
    assert load_index(tmp_path / "index.npz", context.collection, english) is None
    resolved = resolved_options(context)
    assert resolved.collection == str(tmp_path / "data")
    assert resolved.retrieval.stop_words == str(tmp_path / "words.txt")
    assert resolved.retrieval.encoder == "hash"
    named = dataclasses.replace(context, options=dataclasses.replace(options, collection="builtin"))
    assert resolved_options(named).collection == "builtin"


def test_none_is_written_as_the_docs_write_it(tmp_path):
    text = "retrieval:\n  typed_share: none\n  language: none\n  rewriter: none\n"
    (tmp_path / "o.yaml").write_text(text + "rl_agent:\n  target_kl: none\n")
    options = read_options(tmp_path / "o.yaml")
    assert options.retrieval.typed_share is options.rl_agent.target_kl is None
    assert options.retrieval.language == "none" and options.retrieval.rewriter is None


@pytest.mark.parametrize(
    "values, words",
    [
        ({"trainin": {}}, "'trainin' is no section or setting.*Did you mean 'training'"),
        ({"training": {"epoch": 3}}, "'epoch' is not a setting.*Did you mean 'epochs'"),
        ({"rl_agent": 3}, "rl_agent is 3, expected settings below it"),
        ({"retrieval": {"ngrams": -1}}, "ngrams is -1, expected a whole number, at least 0"),
        ({"retrieval": {"weight": 0.3}}, "'weight' is not a setting"),
        ({"retrieval": {"generated": 0}}, "generated is 0, expected a whole number, at least 1"),
        ({"retrieval": {"fusion": -1}}, "fusion is -1, expected"),
        ({"retrieval": {"fusion": "much"}}, "fusion is 'much', expected"),
        ({"training": {"pool_documents": 8}}, "pool_documents is 8, expected"),
    ],
)
def test_unknown_settings_are_errors(values, words):
    with pytest.raises(ValueError, match=words):
        options_from(values)
