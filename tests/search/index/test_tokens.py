"""Words, stop words, stems, and the words that stems came from."""

import pickle
import unicodedata

import pytest

from kytolly.search.index.tokens import STOP_WORDS, EnglishTokenizer, make_tokenizer


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


@pytest.mark.parametrize("language", ["english", "german", "french", "none"])
def test_an_accent_is_the_same_however_it_was_typed(language):
    tokenizer = make_tokenizer(language)
    typed = unicodedata.normalize("NFD", "Kühlschrank naïve résumé")  # ü as u and two dots
    assert tokenizer(typed) == tokenizer("Kühlschrank naïve résumé") and len(tokenizer(typed)) == 3
    assert [word for _, word in tokenizer.surface(typed)] == ["kühlschrank", "naïve", "résumé"]


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


def test_the_default_is_the_english_tokenizer_that_saved_indexes_name():
    for tokenizer in (make_tokenizer(), make_tokenizer("english", "english", 0)):
        assert type(tokenizer) is EnglishTokenizer
        assert tokenizer.identity == EnglishTokenizer().identity
        assert tokenizer.identity.split() == ["english-1", tokenizer.identity.split()[1]]


@pytest.mark.parametrize(
    "language, text, tokens",
    [
        ("german", "Die Häuser der Männer", ["die", "haus", "der", "mann"]),
        ("german", "Ha\u0308user", ["haus"]),  # the accent typed as a character of its own
        ("french", "l'homme, L\u2019Homme", ["homm", "homm"]),
        ("russian", "домами", ["дом"]),
        ("hindi", "लड़कियाँ घर", ["लड़क", "घर"]),  # vowel signs do not end a word
        ("turkish", "İstanbul'da ISI", ["istanbul", "\u0131s"]),  # I is the i without a dot
        ("none", "Running the READ_csv", ["running", "the", "read", "csv"]),
    ],
)
def test_other_languages_have_stems_of_their_own_and_no_english_stop_words(language, text, tokens):
    tokenizer = make_tokenizer(language)
    assert tokenizer(text) == tokens
    assert [token for token, _ in tokenizer.surface(text)] == tokens


@pytest.mark.parametrize(
    "ngrams, text, tokens",
    [
        (2, "東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        (3, "東京タワー", ["東京タ", "京タワ", "タワー"]),
        (1, "東京", ["東", "京"]),
        (2, "東", ["東"]),  # a row of fewer characters is one token
        (2, "東京", ["東京"]),
        (2, "ice東京都2024 Tower", ["ice", "東京", "京都", "2024", "tower"]),
        (2, "東・京", ["東", "京"]),  # the dot is no character of a word
        (2, "ที่ดิน", ["ที", "ี่", "่ด", "ดิ", "ิน"]),  # Thai vowel signs and tone marks count
        (2, "한국어", ["한국", "국어"]),
        (2, "running dogs", ["running", "dogs"]),
        (0, "東京タワー", ["東京タワー"]),
    ],
)
def test_scripts_without_spaces_are_cut_into_ngrams(ngrams, text, tokens):
    assert make_tokenizer("none", "none", ngrams)(text) == tokens


def test_words_beside_ngrams_are_stemmed_and_surfaces_are_kept():
    surface = make_tokenizer("english", "english", 2).surface("The RUNNING 東京都")
    assert surface == [("run", "running"), ("東京", "東京"), ("京都", "京都")]


def test_stop_words_come_from_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("Der\n\ndon\u2019t\n東京\n", encoding="utf-8")
    tokenizer = make_tokenizer("none", str(path), 2)
    assert tokenizer("der Mann don't 東京都 the") == ["mann", "京都", "the"]
    copy = pickle.loads(pickle.dumps(tokenizer))
    path.unlink()  # a process does not read it again
    assert copy.identity == tokenizer.identity and copy("der 東京都") == ["京都"]


def test_the_identity_holds_every_rule(tmp_path):
    (tmp_path / "a").write_text("ice\n")
    (tmp_path / "b").write_text("ice\nsea\n")
    rules = [("german", "none", 0), ("german", "none", 2), ("german", "english", 0)]
    rules += [("swedish", "none", 0), ("none", "none", 0), ("english", "none", 0)]
    rules += [("german", str(tmp_path / name), 0) for name in "ab"] + [("english", "auto", 0)]
    assert len({make_tokenizer(*rule).identity for rule in rules}) == len(rules)
    (tmp_path / "c").write_text("sea\nICE\nsea\n")  # the same words
    same = [make_tokenizer("german", str(tmp_path / name)).identity for name in "bc"]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    "language, said",
    [
        ("germn", "Did you mean 'german'?"),
        ("Japanese", "has no stemmer; expected arabic, armenian,"),
        ("", "or none for words as they are"),
    ],
)
def test_a_language_without_a_stemmer_is_named_with_those_that_have_one(language, said):
    with pytest.raises(ValueError) as caught:
        make_tokenizer(language)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "does not exist; expected a file of stop words, none, or one of danish,"),
        ("", "has no word"),
        ("ice\nsea ice\n", "words.txt:2: 'sea ice' is not one word"),
        ("| a comment\n", "words.txt:1: '| a comment' is not one word"),
    ],
)
def test_files_of_stop_words_that_are_none(tmp_path, text, said):
    path = tmp_path / "words.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError) as caught:
        make_tokenizer(stop_words=str(path))
    assert said in str(caught.value) and "\n" not in str(caught.value)
