"""Words, stop words, stems, and the words that stems came from."""

import pickle

import pytest

from kytolly.retrieval.tokens import STOP_WORDS, EnglishTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return EnglishTokenizer()


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("The runner is running", ["runner", "run"]),
        ("read_csv(x.y)", ["read", "csv", "x", "y"]),
        ("the dog's bone, the dogs' bone", ["dog", "bone", "dog", "bone"]),
        ("I don\u2019t know it's what they won't", ["know"]),
        ("Vitamin C3 in Łódź: 2,5 'mg'", ["vitamin", "c3", "łódź", "2", "5", "mg"]),
        ("", []),
        ("of the", []),
    ],
)
def test_texts_become_stems(tokenizer, text, tokens):
    assert tokenizer(text) == tokens


def test_surfaces_run_beside_tokens(tokenizer):
    text = "Running THE runs, ran Ärger"
    assert tokenizer.surface(text) == [
        ("run", "running"),
        ("run", "runs"),
        ("ran", "ran"),
        ("ärger", "ärger"),
    ]
    assert [stem for stem, _ in tokenizer.surface(text)] == tokenizer(text)


def test_a_copy_in_another_process_has_the_same_identity(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.identity == tokenizer.identity and copy("Searches") == tokenizer("Searches")
    assert tokenizer.identity.startswith("english-1 snowball-3.")


def test_memory_is_bounded(tokenizer, monkeypatch):
    small = EnglishTokenizer()
    monkeypatch.setattr(type(small._stems), "LIMIT", 2)
    assert small("cats dogs birds cats") == ["cat", "dog", "bird", "cat"]
    assert len(small._stems) <= 2


def test_the_list_is_snowballs():
    assert len(STOP_WORDS) == 174
