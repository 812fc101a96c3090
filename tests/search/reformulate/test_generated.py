"""Terms of a rewriter as candidates: what they add, that nothing leaks, and what is refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from kytolly.command import entry as cli
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.reformulate.baselines import GreedyCeiling, as_many_as_mined, mined_candidates
from kytolly.search.reformulate.generated import GeneratedTerms
from kytolly.search.reformulate.mining import NO_CANDIDATE, Miner
from kytolly.search.reformulate.mining_features import MIN_LOG_PROB, MiningRules
from kytolly.search.reformulate.ppo_training import resolved_options
from kytolly.search.reformulate.query import CANDIDATE_FEATURES
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.report import test_lines as report_lines
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.train import train
from kytolly.search.text.held_out_terms import HELD_OUT_FILE, read_held_out
from kytolly.search.text.rewriter import Rewriter
from tests.search.reformulate.far_terms import make_rewriter, write_far_terms
from tests.search.reformulate.tiny_collection import make_options

TEXTS = (
    "Glacier caves form in melting ice of glaciers",
    "Melting ice forms tunnels below a glacier",
    "A tax on incomes",
    "Income of tunnels",
    "solitary",
    "Which caves are warm",
)
INDEX = BM25Index(TEXTS)
RULES = MiningRules(feedback_documents=2, candidates=4, fusion=0.0, generated=3)


def generated_features(found):
    names = ("mining rank", "is generated", "log-probability")
    rows = found.term_features[:, [CANDIDATE_FEATURES.index(name) for name in names]]
    return dict(zip([*found.candidates, *found.lowerable], rows.tolist(), strict=True))


def test_terms_of_no_feedback_document_are_candidates_and_mined_ones_carry_the_features():
    miner = Miner(INDEX, TEXTS, RULES)
    alone = miner.mine("glacier caves")
    assert len(alone.candidates) == 4 and not alone.term_features[:, -2:].any()
    mined = alone.candidates[2]
    proposed = {
        "incom": -1.0,
        "cave": -1.0,
        "unknown": -1.0,
        mined: -2.5,
        "solitari": -30.0,
        "tax": -1,
    }
    found = miner.mine("glacier caves", generated=proposed)
    # "cave" is of the query, "unknown" of no document, and "tax" is the fourth.
    assert (
        found.candidates == [*alone.candidates, "incom", "solitari"]
        and found.lowerable == alone.lowerable
    )
    features = generated_features(found)
    assert features["incom"] == pytest.approx([0.0, 1.0, 1.0 - 1.0 / -MIN_LOG_PROB])
    assert features["solitari"] == [0.0, 1.0, 0.0]
    assert features[mined] == pytest.approx([0.5, 1.0, 0.75])
    assert features["cave"] == [0.0, 0.0, 0.0] and features[alone.candidates[0]][1:] == [0.0, 0.0]
    assert found.surfaces[4:6] == ["incomes", "solitary"]  # as the first document spells them
    others = [*range(4), 6, 7]
    np.testing.assert_array_equal(found.term_features[others][:, :-2], alone.term_features[:, :-2])
    np.testing.assert_array_equal(found.query_features, alone.query_features)
    few = Miner(INDEX, TEXTS, RULES._replace(generated=0)).mine("glacier caves", generated=proposed)
    np.testing.assert_array_equal(few.term_features, alone.term_features)


def test_a_query_whose_documents_have_no_other_term_gets_those_of_the_rewriter():
    miner = Miner(INDEX, TEXTS, RULES)
    assert miner.mine("solitary") == miner.mine("solitary", generated={"unknown": -1.0})
    assert miner.mine("solitary") == NO_CANDIDATE
    found = miner.mine("solitary", generated={"tax": -1.0})
    assert found.candidates == ["tax"] and np.isfinite(found.term_features).all()
    assert np.abs(found.term_features).max() <= 2.0


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    return write_far_terms(tmp_path_factory.mktemp("far") / "animals")


@pytest.fixture(scope="module")
def rewriter(animals):
    return make_rewriter(animals.parent / "rewriter", animals)


def options_of(collection, rewriter, **training):
    retrieval = {"rewriter": rewriter and str(rewriter), "generated": 2, "fusion": 0.0}
    return make_options(collection, retrieval, epochs=0, held_out_folds=0, **training)


@pytest.fixture(scope="module")
def trained(animals, rewriter):
    """A run of the agent, made with a copy of the rewriter's run that is gone afterwards."""
    copy, run = shutil.copytree(rewriter, animals.parent / "copy"), animals.parent / "run"
    summary = train(options_of(animals, copy), log_dir=run, test=True)
    shutil.rmtree(copy)
    return run, summary


def test_the_agent_finds_what_the_first_search_cannot_lead_to(animals, trained, tmp_path):
    _, summary = trained
    systems = summary["test"]["systems"]
    assert systems["bm25"]["ndcg@10"]["mean"] == 0.0 < 0.4 < systems["agent"]["ndcg@10"]["mean"]
    assert systems["ceiling_mined"]["ndcg@10"]["mean"] == 0.0
    for name in ("ceiling", "ceiling_as_many"):
        assert systems[name]["ndcg@10"]["mean"] > 0.8
        assert systems[name]["ndcg@10"]["over_mined"]["low"] > 0.5
    text = "\n".join(report_lines(summary["test"]))
    assert "greedy ceiling, mined" in text and "over that of mined terms" in text
    alone = train(
        options_of(animals, None, warm_start_epochs=2), log_dir=tmp_path / "run", test=True
    )
    assert alone["test"]["systems"]["agent"]["ndcg@10"]["mean"] == 0.0
    assert "ceiling_mined" not in alone["test"]["systems"]


def test_a_run_needs_its_rewriter_no_more_and_says_what_it_wrote(trained, capsys):
    run, _ = trained
    found = Reformulator.load(run).reformulate("any horse")
    assert {one.term for one in found.added} & {"being2", "limb2"}
    assert {one.source for one in found.added} <= {"generated", "mined"}
    assert any("(generated, candidate " in line for line in found.lines())
    assert cli.main(["reformulate", str(run), "any horse", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["added"][0]["source"] == "generated"
    assert not (run / "rewriter" / HELD_OUT_FILE).exists()


def test_a_run_without_its_copy_of_the_rewriter_is_refused(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "run")
    shutil.rmtree(run / "rewriter")
    with pytest.raises(ValueError, match=r"has no rewriter\.json; expected its copy there"):
        Reformulator.load(run)


def test_other_documents_get_no_generated_terms(trained, animals, tmp_path):
    other = shutil.copytree(animals, tmp_path / "other")
    with (other / "corpus.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "new{n}", "text": "horse and being2"}}\n' for n in range(9))
    with pytest.warns(UserWarning, match="nothing says that its network helps here"):
        found = Reformulator.load(trained[0], other)
    assert found.context.generator is None and found.context.rules.max_candidates == 8
    assert all(one.source == "mined" for one in found.reformulate("any horse").added)


def test_the_packages_network_gets_the_terms_of_a_rewriter_where_one_is_named(
    trained, animals, rewriter, capsys
):
    with_terms = Reformulator.pretrained(animals, language="english", rewriter=rewriter)
    collection = with_terms.context.collection.with_queries(("q",), ("any horse",))
    (query,) = with_terms.context.mine(collection, [0], [])
    proposed = with_terms.context.generator.terms_of(["any horse"])[0]
    generated = query.candidate_features[:, CANDIDATE_FEATURES.index("is generated")]
    assert proposed == pytest.approx(dict.fromkeys(("being2", "limb2"), 0.0), abs=0.1)
    assert {query.candidates[place] for place in np.flatnonzero(generated)} == set(proposed)
    words = ["reformulate", "pretrained", "any horse", "--collection", str(animals), "--json"]
    assert cli.main([*words, "--language", "english", "--rewriter", str(rewriter)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["added"] == [
        one.as_dict() for one in with_terms.reformulate("any horse").added
    ]
    assert cli.main(["reformulate", str(trained[0]), "any horse", "--rewriter", str(rewriter)]) == 2
    assert "--rewriter goes with pretrained: a run has the rewriter" in capsys.readouterr().err


def test_learning_sees_what_was_proposed_without_knowing_the_query(rewriter):
    main = Rewriter.load(rewriter)
    texts = ["see cat", "any cat", "see cat"]
    found = GeneratedTerms.load(rewriter, learning=True)
    found.held_out["see cat"] = found.held_out["see cat"][:1]
    first, second, third = found.terms_of(texts)
    assert list(first.items()) == list(third.items()) == [tuple(found.held_out["see cat"][0])]
    assert list(second.items()) == [tuple(one) for one in main.terms("any cat")]
    assert found.terms_of([]) == []


def test_a_rewriter_without_held_out_terms_is_refused_where_an_agent_learns(
    animals, rewriter, tmp_path
):
    bare = shutil.copytree(rewriter, tmp_path / "bare")
    (bare / HELD_OUT_FILE).unlink()
    with pytest.raises(ValueError, match=r"has no held_out_terms\.json: of its train queries"):
        SearchContext.load(options_of(animals, bare), ("train", "dev"))
    context = SearchContext.load(options_of(animals, bare), ("test",))  # nothing learns
    assert context.generator is not None and not context.generator.held_out


def test_a_rewriter_of_another_tokenizer_or_subject_is_refused(animals, rewriter, tmp_path):
    german = dataclasses.replace(options_of(animals, rewriter).retrieval, language="german")
    options = dataclasses.replace(options_of(animals, rewriter), retrieval=german)
    with pytest.raises(ValueError, match=r"the rewriter makes terms by the rules english-1 .* set"):
        SearchContext.load(options, ())
    found = GeneratedTerms.load(rewriter, learning=False)
    found.check_index(BM25Index(["being1 limb1", "cat horse", "dog"]))
    with pytest.raises(ValueError, match="only 10% of the rewriter's words are terms of the docum"):
        found.check_index(BM25Index(["cat Haus", "eins zwei drei vier", "sechs sieben acht neun"]))


def test_a_folder_that_is_no_rewriter_is_refused(animals, tmp_path):
    with pytest.raises(ValueError, match="is no run"):
        SearchContext.load(options_of(animals, tmp_path), ("train",))


def test_the_options_of_a_run_name_the_rewriter_in_full(animals, rewriter, monkeypatch):
    monkeypatch.chdir(rewriter.parent)
    context = SearchContext.load(options_of("animals", rewriter.name), ("train",))
    assert resolved_options(context).retrieval.rewriter == str(rewriter)
    (query,) = context.mine(context.collection, [0], [])
    held_out = read_held_out(rewriter / HELD_OUT_FILE) or {}
    proposed = [one.term for one in held_out[context.collection.queries[0]]]
    assert query.candidates[-2:] == proposed
    assert (
        len(query.candidates) + len(query.lowerable) <= context.rules.max_candidates == 8 + 2 + 12
    )


def test_ceilings_are_compared_at_an_equal_number_of_candidates(animals, rewriter):
    context = SearchContext.load(options_of(animals, rewriter), ("test",))
    (query,) = context.queries("test")[:1]
    mined, equal = mined_candidates(query), as_many_as_mined(query)
    assert mined.candidates == query.candidates[:-2]
    assert equal.candidates == [*mined.candidates[:-2], *query.candidates[-2:]]
    assert equal.lowerable == mined.lowerable == query.lowerable
    assert len(equal.candidate_features) == len(equal.surfaces) == equal.options
    greedy = GreedyCeiling(context.index)
    assert set(greedy(equal)) - set(query.weights) and greedy(mined) == query.weights
    nothing = query._replace(candidates=query.candidates[-2:])  # and no mined one
    nothing = nothing._replace(
        candidate_features=query.candidate_features[-2 - len(query.lowerable) :],
        surfaces=query.surfaces[-2 - len(query.lowerable) :],
    )
    assert mined_candidates(nothing).candidates == as_many_as_mined(nothing).candidates == []
    assert greedy(mined_candidates(nothing)) == query.weights
