"""The language of a text, and the tokenizer that follows from it."""

# ruff: noqa: RUF001
import dataclasses

import pytest

from kytolly.search.index.tokens import NONE
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions
from kytolly.search.reformulate.search import with_language
from kytolly.search.text.language import (
    Language,
    gram_buckets,
    identify_language,
    language_names,
    main_language,
)

# Article 1 of the Universal Declaration of Human Rights: of no text that the network has seen.
SENTENCES = {
    "danish": "Alle mennesker er født frie og lige i værdighed og rettigheder.",
    "dutch": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren.",
    "english": "All human beings are born free and equal in dignity and rights.",
    "finnish": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "french": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "german": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "italian": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "portuguese": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos.",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "swedish": "Alla människor är födda fria och lika i värde och rättigheter.",
    "turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_is_in_its_language(name):
    found = identify_language(SENTENCES[name])
    assert found.name == name and 0.5 < found.probability <= 1


@pytest.mark.parametrize("name", SENTENCES)
def test_half_a_sentence_without_case_is_in_its_language_too(name):
    text = SENTENCES[name]
    assert identify_language(text[: max(30, len(text) // 2)].upper()).name == name


@pytest.mark.parametrize("text", ["", " ", "12,5 % (3)", "https://example.org", "—\n_"])
def test_a_text_without_a_letter_has_no_language(text):
    assert identify_language(text) == Language(NONE, 0.0)


def test_a_very_long_text_and_half_a_character_are_no_problem():
    assert identify_language(SENTENCES["german"] * 100_000).name == "german"
    assert identify_language("\ud800" + SENTENCES["german"]).name == "german"


def test_the_features_are_runs_of_one_to_four_characters_with_spaces():
    # " ab ": runs of 1: 4, of 2: 3, of 3: 2, of 4: 1.
    assert len(gram_buckets("AB!", 1000)) == 10
    assert gram_buckets("a  1 b", 1000).tolist() == gram_buckets("A, B.", 1000).tolist()
    assert gram_buckets("ab", 1000).tolist() != gram_buckets("ba", 1000).tolist()
    # The hash itself, so that the trained rows keep their meaning.
    assert gram_buckets("ä", 2**14).tolist() == [3909, 12675, 3909, 15502, 10286, 286]


def test_the_language_of_most_texts():
    texts = [SENTENCES["german"], SENTENCES["german"], SENTENCES["polish"], "123"]
    assert main_language(texts) == ("german", pytest.approx(2 / 3))
    assert main_language(["1", ""]) == (NONE, 0.0)


def test_every_language_has_a_name_of_its_own():
    names = language_names()
    assert len(set(names)) == len(names) >= 40 and set(SENTENCES) <= set(names)


def options(**retrieval):
    return ReformulationOptions(retrieval=RetrievalOptions(**retrieval))


@pytest.mark.parametrize(
    "texts, language, ngrams",
    [
        ([SENTENCES["english"]], "english", 0),
        ([SENTENCES["german"]] * 2 + [SENTENCES["english"]], "german", 0),
        ([SENTENCES["german"], SENTENCES["english"]], NONE, 0),  # neither is most
        ([SENTENCES["japanese"]], NONE, 2),
        (["1"], NONE, 0),
    ],
)
def test_the_tokenizer_follows_the_documents(texts, language, ngrams):
    found = with_language(options(language="auto"), texts).retrieval
    assert (found.language, found.ngrams) == (language, ngrams)


def test_what_the_options_say_stays():
    assert with_language(options(language="auto", ngrams=3), [SENTENCES["japanese"]]) == options(
        language=NONE, ngrams=3, stop_words=NONE
    )
    given = options(language="german", stop_words=NONE)
    assert with_language(given, [SENTENCES["english"]]) == given
    assert dataclasses.asdict(options())["retrieval"]["language"] == "english"
