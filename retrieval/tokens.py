"""Tokens of a text: words that a search index takes for the same have the same token."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Protocol

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


class Tokenizer(Protocol):
    """What an index asks of a tokenizer."""

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

    Source: Porter, "The English (Porter2) stemming algorithm", snowballstem.org.
    """

    def __init__(self):
        try:
            import snowballstemmer
        except ImportError:
            raise ModuleNotFoundError(
                "The package snowballstemmer is not installed, and English stems need it: "
                "pip install 'kytolly[retrieval]', or give a tokenizer of your own."
            ) from None
        stemmer = snowballstemmer.stemmer("english")  # PyStemmer's, in C, where it is installed
        compiled = type(stemmer).__module__.split(".")[0] == "Stemmer"
        version = importlib.metadata.version("PyStemmer" if compiled else "snowballstemmer")
        release = ".".join(version.split(".")[:2])  # both packages number Snowball's releases
        self.identity = f"english-1 snowball-{release}"
        self._stems = _Stems(stemmer.stemWord)

    def __reduce__(self):
        return type(self), ()  # a process gets an empty memory of its own

    def __call__(self, text: str) -> list[str]:
        """Stems of a text's words, in order."""
        stems = self._stems
        return [stem for word in WORD.findall(text.lower()) if (stem := stems[word])]

    def surface(self, text: str) -> list[tuple[str, str]]:
        """(stem, word in lower case) of a text's words, in order: [("run", "running"), ...]."""
        stems = self._stems
        return [(stem, word) for word in WORD.findall(text.lower()) if (stem := stems[word])]


class _Stems(dict):
    """Word -> its stem, "" for a stop word; computed once per word, forgotten when too many."""

    LIMIT = 2_000_000

    def __init__(self, stem_word):
        super().__init__()
        self._stem_word = stem_word

    def __missing__(self, word: str) -> str:
        plain = word.replace(CURLED, "'")
        stem = "" if plain in STOP_WORDS else self._stem_word(plain)
        if len(self) >= self.LIMIT:
            self.clear()
        self[word] = stem
        return stem
