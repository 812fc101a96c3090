"""The environment of rewriting: its reward is that of a full search."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.spec import ACTION_MASK
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.rank_metrics import NOT_RANKED
from kytolly.search.text.rewriting_env import RewardRules, RewritingEnv, allowed_tokens
from kytolly.search.text.rewriting_pools import (
    HIDDEN,
    MISSING,
    SearchedQuery,
    found_ranks,
    make_pools,
    make_postings,
    metric_values,
    searched_queries,
)
from kytolly.search.text.vocabulary import BEGIN, END, PADDING, SPECIAL, UNKNOWN

WEIGHT, COST, LENGTH = 0.3, 0.01, 3


def random_collection(documents=60, words=25, queries=6, seed=0):
    """An index of random texts, queries of two words, and the terms without any special ones."""
    random = np.random.default_rng(seed)
    names = [f"w{chr(97 + k)}x" for k in range(words)]
    share = 1.0 / np.arange(1, words + 1)
    texts = [
        " ".join(random.choice(names, random.integers(2, 9), p=share / share.sum()))
        for _ in range(documents)
    ]
    index = BM25Index(texts)
    found = []
    for number in range(queries):
        text = " ".join(random.choice(names[:8], 2, replace=False))
        relevant = sorted(random.choice(documents, 1 + number % 3, replace=False).tolist())
        own = int(next(k for k in range(documents) if k not in relevant)) if number == 2 else None
        found.append(SearchedQuery(text, relevant, own))
    return index, found


def make_env(index, queries, count, in_order=True, written=None, **rules):
    terms = ["", "", "", "", *index.terms]
    numbers = {term: token for token, term in enumerate(terms) if term}
    source = np.array([[numbers[t] for t in index.tokenizer(q.text)] for q in queries], np.int32)
    pools = make_pools(index, queries, written or [[] for _ in queries], WEIGHT, count)
    rules = RewardRules(term_weight=WEIGHT, **rules)
    env = RewritingEnv("toy", source, pools, make_postings(index, terms), LENGTH, rules, in_order)
    return env, terms


@pytest.mark.parametrize("metric", ["ndcg@10", "mrr@10", "ap", "recall@40"])
def test_the_rewards_of_an_episode_are_the_gain_of_a_full_search_minus_the_costs(metric):
    index, queries = random_collection()
    env, terms = make_env(index, queries, index.documents, metric=metric, term_cost=COST)
    random, size = np.random.default_rng(1), len(queries)
    state, total = env.reset(tf.zeros([size, 1])), np.zeros(size)
    written = [[] for _ in queries]
    for _ in range(LENGTH):
        mask = env.observe(state)[ACTION_MASK].numpy()
        mask[:, END] = False
        action = np.array([random.choice(np.flatnonzero(row)) for row in mask], np.int32)
        state, reward, over = env.step(state, tf.constant(action), tf.zeros([size, 0]))
        total += reward.numpy()
        for row, token in zip(written, action, strict=True):
            row.append(terms[token])
    nothing = [[] for _ in queries]
    before = metric_values(index, queries, nothing, WEIGHT, metric)
    after = metric_values(index, queries, written, WEIGHT, metric)
    assert over.numpy().all() and np.any(after != before)
    np.testing.assert_allclose(total, after - before - COST * LENGTH, atol=1e-6)


def test_the_values_of_a_full_search_are_those_of_its_ranking():
    index, queries = random_collection(seed=3)
    added = [["wax", "wbx"], ["wcx"], [], ["wdx"], ["wex"], ["wfx"]]
    values = metric_values(index, queries, added, WEIGHT, "mrr@10")
    for query, terms, value in zip(queries, added, values, strict=True):
        weights = {**index.query_weights(query.text), **dict.fromkeys(terms, WEIGHT)}
        ranking = [d for d in index.search(weights, index.documents)[0].tolist() if d != query.own]
        places = [
            ranking.index(d) for d in query.relevant if d in ranking and ranking.index(d) < 10
        ]
        assert value == pytest.approx(1 / (1 + min(places)) if places else 0.0)


def test_what_a_word_adds_is_found_by_halving_for_every_word_and_document():
    index, queries = random_collection()
    env, terms = make_env(index, queries, index.documents)
    docs = tf.tile(tf.range(index.documents)[tf.newaxis], [len(terms), 1])
    compiled = tf.function(env.impacts, jit_compile=True)
    for impacts in (env.impacts, compiled):
        found = impacts(tf.range(len(terms)), docs).numpy()
        np.testing.assert_array_equal(found, [index.column(term) for term in terms])
    none = env.impacts(tf.range(len(terms)), tf.fill(docs.shape, MISSING))
    assert not none.numpy().any()


def test_the_end_changes_nothing_and_ends_the_episode():
    index, queries = random_collection()
    env, _ = make_env(index, queries, index.documents, term_cost=COST)
    state = env.reset(tf.zeros([2, 1]))
    after, reward, over = env.step(state, tf.constant([END, SPECIAL]), tf.zeros([2, 0]))
    assert over.numpy().tolist() == [True, False] and float(reward[0]) == 0.0
    assert after.count.numpy().tolist() == [0, 1] and not after.written.numpy()[0].any()
    np.testing.assert_array_equal(after.scores[0], state.scores[0])


def test_a_mask_forbids_special_tokens_the_query_and_what_is_written():
    source, written = tf.constant([[5, UNKNOWN, 0], [7, 0, 0]]), tf.constant([[4, 0], [0, 0]])
    allowed = allowed_tokens(source, written, 9).numpy()
    first = {PADDING, BEGIN, UNKNOWN, 4, 5}
    assert set(np.flatnonzero(~allowed[0])) == first
    assert set(np.flatnonzero(~allowed[1])) == {PADDING, BEGIN, UNKNOWN, 7}
    assert allowed[:, END].all()


def test_a_pool_has_the_best_of_the_query_of_the_longer_query_and_the_relevant():
    index = BM25Index(["red", "red red", "blue", "blue blue", "green", "far", "red own"])
    query = SearchedQuery("red", [5], 6)
    pools = make_pools(index, [query], [["blue"]], 5.0, 4)
    scores = index.scores({"red": 1.0})
    # Two are the best of "red" (but for the query itself), two of "red" and much "blue".
    assert pools.docs.tolist() == [[0, 1, 2, 3, 5]] and pools.relevant.tolist() == [[4]]
    np.testing.assert_array_equal(pools.base, [scores[[0, 1, 2, 3, 5]]])
    both = make_pools(index, [query, query._replace(relevant=[0, 5], own=None)], [[], []], 1.0, 99)
    assert both.docs.tolist() == [[0, 1, 2, 3, 4, 5, MISSING], [0, 1, 2, 3, 4, 5, 6]]
    assert both.base[0, 6] == np.float32(HIDDEN) and both.relevant_count.tolist() == [1, 2]
    assert both.relevant.tolist() == [[5, MISSING], [0, 5]]


def test_a_relevant_document_of_score_0_is_not_found():
    ranks = found_ranks(tf.constant([[0.0, 2.0, 1.0]]), tf.constant([[0, 2, MISSING]]))
    assert ranks.numpy().tolist() == [[NOT_RANKED, 1, NOT_RANKED]]


def test_the_environment_keeps_the_promises_of_all_and_draws_its_queries():
    index, queries = random_collection()
    env, _ = make_env(index, queries, 10, in_order=False)
    check_environment(env)
    draws = tf.constant([[0.0], [0.5], [0.999999]])
    assert env.reset(draws).query.numpy().tolist() == [0, 3, 5]
    ordered, _ = make_env(index, queries, 10)
    assert ordered.reset(tf.zeros([8, 1])).query.numpy().tolist() == [0, 1, 2, 3, 4, 5, 0, 1]


def test_a_split_without_a_relevant_document_is_refused(tmp_path):
    from kytolly.search.index.corpus import load_collection
    from tests.search.text.collection_files import write_animals

    folder = write_animals(tmp_path / "a")
    collection = load_collection(folder)
    assert len(searched_queries(collection, "train")) == 18
    rows = (folder / "qrels" / "dev.tsv").read_text("utf-8").replace("\t1\n", "\t0\n")
    (folder / "qrels" / "dev.tsv").write_text(rows, "utf-8")
    with pytest.raises(ValueError, match="no query of the split dev of a has a relevant document"):
        searched_queries(load_collection(folder), "dev")
