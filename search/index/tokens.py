"""Tokens of a text: words that a search index takes for the same have the same token."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import itertools
import re
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from kytolly.config.words import nearest, value_text
from kytolly.search.index.files import text_lines

NONE, AUTO, ENGLISH = "none", "auto", "english"
STOP_WORDS_FILE = Path(__file__).with_name("stop_words.txt")  # of other languages than English
CURLED = "\u2019"  # the apostrophe of typesetters
WORD = re.compile(rf"[^\W_]+(?:['{CURLED}][^\W_]+)*")  # letters and digits; it's is one word

# Source: the English list of the Snowball project, snowballstem.org/algorithms/english/stop.txt.
STOP_WORDS = frozenset(
    """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she
    her hers herself it its itself they them their theirs themselves what which who whom this that
    these those am is are was were be been being have has had having do does did doing would should
    could ought i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd
    she'd we'd they'd i'll you'll he'll she'll we'll they'll isn't aren't wasn't weren't hasn't
    haven't hadn't doesn't don't didn't won't wouldn't shan't shouldn't can't cannot couldn't
    mustn't let's that's who's what's here's there's when's where's why's how's a an the and but if
    or because as until while of at by for with about against between into through during before
    after above below to from up down in out on off over under again further then once here there
    when where why how all any both each few more most other some such no nor not only own same so
    than too very
    """.split()  # noqa: SIM905
)

# Characters of words between which no spaces are written: Thai, Lao, Burmese, Khmer, kana, Chinese
# characters; and Hangul, whose words carry particles that no stemmer here takes off.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"
    "\u3005-\u3007\u3031-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"
)


class Tokenizer(Protocol):
    """A tokenizer, as an index needs it."""

    @property
    def identity(self) -> str:
        """The rules and their versions; tokenizers of equal identity give equal tokens."""
        ...

    def __call__(self, text: str) -> list[str]:
        """Tokens of a text, in order, repeated as often as they occur."""
        ...

    def surface(self, text: str) -> list[tuple[str, str]]:
        """(token, word of the text in lower case) in the order of `__call__`."""
        ...


class EnglishTokenizer:
    """Lower case, letters and digits, English stop words left out, Snowball stems.

    An accent is one letter with the letter below it however it was typed (Unicode's form NFC).

    Source: Porter, "The English (Porter2) stemming algorithm", snowballstem.org.
    """

    def __init__(self):
        stem_word, release = _snowball("english")
        self.identity = f"english-1 snowball-{release}"
        self._stems = _Stems(stem_word, STOP_WORDS)

    def __reduce__(self):
        return type(self), ()  # a process gets an empty memory of its own

    def __call__(self, text: str) -> list[str]:
        """Stems of a text's words, in order."""
        stems = self._stems
        return [stem for word in plain_words(text) if (stem := stems[word])]

    def surface(self, text: str) -> list[tuple[str, str]]:
        """(stem, word in lower case) of a text's words, in order: [("run", "running"), ...]."""
        stems = self._stems
        return [(stem, word) for word in plain_words(text) if (stem := stems[word])]


def plain_words(text: str) -> list[str]:
    """Words of a text as `WORD` has them, in lower case and composed form."""
    return WORD.findall(unicodedata.normalize("NFC", text).lower())


class LanguageTokenizer:
    """Lower case, letters and digits with their accents, stop words left out, stems, n-grams.

    Unlike `EnglishTokenizer`, a vowel sign (Hindi, Thai, Arabic) is a part of its word, and an
    accent is one letter with the letter below it however it was typed (Unicode's form NFC).

    Args:
        language: A language of Snowball's, or "none": no stems.
        stop_words: Words that are left out, in lower case.
        ngrams: In scripts that are written without spaces, and in Hangul, every n characters in a
            row are a token in place of the word; a row of fewer is one token. 0: no n-grams.
    """

    def __init__(self, language: str, stop_words: Collection[str], ngrams: int):
        self._rules = language, frozenset(stop_words), ngrams
        stem_word, release = _snowball(language) if language != NONE else (str, "0")
        digest = hashlib.sha256("\n".join(sorted(self._rules[1])).encode()).hexdigest()
        self.identity = (
            f"words-1 {language} snowball-{release} stop-{digest[:16]} {ngrams}-grams "
            f"unicode-{unicodedata.unidata_version}"
        )
        self._words, self._runs = _marked_word(), re.compile(f"([{UNSPACED}]+)|[^{UNSPACED}]+")
        self._stems = _Stems(stem_word, self._rules[1])

    def __reduce__(self):
        return type(self), self._rules  # a process gets an empty memory of its own

    def __call__(self, text: str) -> list[str]:
        """Tokens of a text, in order."""
        return [token for token, _ in self.surface(text)]

    def surface(self, text: str) -> list[tuple[str, str]]:
        """(token, word or n-gram in lower case) of a text, in order."""
        language, _, ngrams = self._rules
        if language == "turkish":  # it has an i with a dot and one without
            text = text.replace("I", "\u0131").replace("\u0130", "i")
        words = self._words.findall(unicodedata.normalize("NFC", text).lower())
        if ngrams:
            words = itertools.chain.from_iterable(map(self._pieces, words))
        stems = self._stems
        return [(stem, word) for word in words if (stem := stems[word])]

    def _pieces(self, word: str) -> list[str]:
        """The n-grams of a word's runs of unspaced characters, and its other runs as they are."""
        n, pieces = self._rules[2], []
        for match in self._runs.finditer(word):
            run, grams = match.group(), range(len(match.group()) - n + 1)
            pieces += [run[at : at + n] for at in grams] if match.group(1) and grams else [run]
        return pieces


def make_tokenizer(
    language: str = "english", stop_words: str = "auto", ngrams: int = 0
) -> Tokenizer:
    """A tokenizer by its rules.

    Args:
        language: One of `languages()`, or "none": words are not stemmed.
        stop_words: One of `stop_word_lists()`: the list of that language; "none"; "auto": the
            English list if the language is English, else none, as runs of earlier versions mean
            it; any other text is the path of a file with one word a line.
        ngrams: Length of the n-grams that stand for words in scripts without spaces; 0: none.

    Raises:
        ValueError: There is no such stemmer, or the file cannot be read.
    """
    if language not in (NONE, "english") and language not in (known := languages()):
        raise ValueError(
            f"language {value_text(language)} has no stemmer; expected {', '.join(known)}, or none "
            f"for words as they are (with ngrams where no spaces are).{nearest(language, known)}"
        )
    if stop_words == AUTO:
        stop_words = "english" if language == "english" else NONE
    if (language, stop_words, ngrams) == ("english", "english", 0):
        return EnglishTokenizer()
    lists = {NONE: frozenset(), **stop_word_lists()}
    words = lists[stop_words] if stop_words in lists else read_stop_words(stop_words)
    return LanguageTokenizer(language, words, ngrams)


def languages() -> list[str]:
    """Names of the languages that Snowball has a stemmer for."""
    return sorted(_snowball_package().algorithms())


@functools.cache
def stop_word_lists() -> dict[str, frozenset[str]]:
    """Language -> its stop words, for the languages that the package has a list of.

    Source: the lists of the Snowball project (BSD), and for Turkish that of bm25s 0.3.16 (MIT).
    """
    lists: dict[str, frozenset[str]] = {ENGLISH: STOP_WORDS}
    language = ""
    for line in STOP_WORDS_FILE.read_text("utf-8").splitlines():
        if line.startswith("["):
            language = line.strip("[]")
        else:
            lists[language] = lists.get(language, frozenset()) | frozenset(line.split())
    return lists


def read_stop_words(path: str | Path) -> frozenset[str]:
    """The words of a file with one word a line, in lower case.

    Raises:
        ValueError: There is no such file, or a line is not one word.
    """
    words, known = set(), ", ".join(sorted(stop_word_lists()))
    for number, line in text_lines(path, f"expected a file of stop words, none, or one of {known}"):
        word = unicodedata.normalize("NFC", line.strip()).lower()
        if not _marked_word().fullmatch(word):
            raise ValueError(
                f"{path}:{number}: {value_text(line)} is not one word of letters and digits; "
                "expected one: write one word a line."
            )
        words.add(word.replace(CURLED, "'"))
    if not words:
        raise ValueError(f"{path} has no word; expected one a line: or choose stop_words: none.")
    return frozenset(words)


def _snowball_package() -> Any:
    try:
        import snowballstemmer
    except ImportError:
        raise ModuleNotFoundError(
            "The package snowballstemmer is not installed, and stems need it: "
            "pip install 'kytolly[retrieval]', or give a tokenizer of your own."
        ) from None
    return snowballstemmer


def _snowball(language: str) -> tuple[Any, str]:
    """Word -> stem in a language, and the release of Snowball."""
    stemmer = _snowball_package().stemmer(language)  # PyStemmer's, in C, where it is installed
    compiled = type(stemmer).__module__.split(".")[0] == "Stemmer"
    version = importlib.metadata.version("PyStemmer" if compiled else "snowballstemmer")
    return stemmer.stemWord, ".".join(version.split(".")[:2])  # both number Snowball's releases


@functools.cache
def _marked_word() -> re.Pattern[str]:
    """As WORD, with the marks that Unicode combines with letters, such as vowel signs."""
    letters = map(chr, range(0x20000))
    marks = "".join(letter for letter in letters if unicodedata.category(letter).startswith("M"))
    word = rf"[^\W_]+(?:[{marks}]+[^\W_]*)*"
    return re.compile(rf"{word}(?:['{CURLED}]{word})*")


class _Stems(dict):
    """Word -> its stem, "" for a stop word; computed once per word, forgotten when too many."""

    LIMIT = 2_000_000

    def __init__(self, stem_word, stop_words):
        super().__init__()
        self._stem_word, self._stop_words = stem_word, stop_words

    def __missing__(self, word: str) -> str:
        plain = word.replace(CURLED, "'")
        stem = "" if plain in self._stop_words else self._stem_word(plain)
        if len(self) >= self.LIMIT:
            self.clear()
        self[word] = stem
        return stem
