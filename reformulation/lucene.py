"""Weighted words in the syntax of Lucene's classic query parser."""

from __future__ import annotations

import re
from collections.abc import Mapping

SPECIAL_CHARACTERS = re.compile(r'([+\-!(){}\[\]^"~*?:\\/&|<>=\s])')
OPERATORS = ("AND", "OR", "NOT", "TO")


def lucene_query(weights: Mapping[str, float]) -> str:
    """Weighted words in the syntax of Lucene's classic query parser: `glacier cave^0.3`."""
    parts = []
    for word, weight in weights.items():
        boost = "" if weight == 1.0 else f"^{weight_text(weight)}"
        parts.append(lucene_word(word) + boost)
    return " ".join(parts)


def lucene_word(word: str) -> str:
    """A word with a backslash before every character that has a meaning in Lucene's syntax."""
    if word in OPERATORS:
        return "\\" + word
    return SPECIAL_CHARACTERS.sub(r"\\\1", word)


def weight_text(weight: float) -> str:
    """A weight in plain digits; Lucene reads no exponents."""
    return f"{weight:.6f}".rstrip("0").rstrip(".")
