"""Weighted queries in the languages of other search engines."""

import json
import sqlite3

import pytest

from kytolly.search.index.exports import (
    EXPORTS,
    elasticsearch_query,
    fts5_query,
    lucene_query,
    lucene_word,
    weight_text,
)

WORDS = {"glacier": 1.0, "cave": 2.0, "ice": 0.3}


def test_lucene_syntax():
    assert lucene_query(WORDS) == "glacier cave^2 ice^0.3"
    assert lucene_word('a+b:(c)"d"\\e/f') == 'a\\+b\\:\\(c\\)\\"d\\"\\\\e\\/f'
    assert lucene_word("OR") == "\\OR" and lucene_word("order") == "order"
    assert lucene_word("two words") == "two\\ words"
    assert weight_text(0.30000001) == "0.3" and weight_text(1e-5) == "0.00001"
    assert weight_text(12.0) == "12"


def test_elasticsearch_boosts_each_word_in_one_field():
    query = elasticsearch_query({"glacier": 1, "ice": 0.3}, "body")
    assert json.loads(json.dumps(query)) == {
        "bool": {
            "should": [
                {"match": {"body": {"query": "glacier", "boost": 1.0}}},
                {"match": {"body": {"query": "ice", "boost": 0.3}}},
            ]
        }
    }
    assert elasticsearch_query({"AND": 2.0}, "tag", kind="term") == {
        "bool": {"should": [{"term": {"tag": {"value": "AND", "boost": 2.0}}}]}
    }


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_elasticsearch_gets_no_boost_that_it_refuses(weight):
    with pytest.raises(ValueError, match=r"the word 'ice' has the weight .*: leave the word out\."):
        elasticsearch_query({"ice": weight}, "body")


@pytest.mark.parametrize(
    "word, found",
    [
        ("cave", ["1", "3"]),
        ("NOT", ["2"]),
        ('say "cave"', []),
        ('ice" OR "cave', []),
        ("ca*", []),
        ("title : cave", []),
        ("ice-cave", ["3"]),  # two tokens, one after the other
        ("cave\0rn", []),
        ("!!", []),
        ("", []),
    ],
)
def test_no_operator_gets_through_to_fts5(word, found):
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, text)")
    rows = [("1", "deep caves and a cave"), ("2", "it is not so"), ("3", "the ice cave")]
    database.executemany("INSERT INTO docs VALUES (?, ?)", rows)
    for column in (None, "text"):
        match, weights = fts5_query({word: 0.5}, column)
        ids = database.execute("SELECT id FROM docs WHERE docs MATCH ?", (match,)).fetchall()
        assert [key for (key,) in ids] == found and weights == {word: 0.5}
    database.close()


def test_fts5_finds_documents_with_any_word():
    assert fts5_query({"glacier": 1, "ice": 0.3}) == (
        '"glacier" OR "ice"',
        {"glacier": 1.0, "ice": 0.3},
    )
    assert fts5_query({"a": 1, "b": 1}, 'te"xt').match == '"te""xt" : ("a" OR "b")'
    assert fts5_query({}, "text").match == ""


def test_every_export_can_be_printed():
    printed = {name: json.dumps(export(WORDS, "text")) for name, export in EXPORTS.items()}
    assert set(printed) == {"lucene", "elasticsearch", "fts5"}
    assert json.loads(printed["elasticsearch"])["query"]["bool"]["should"]
    assert json.loads(printed["fts5"])["weights"] == WORDS
