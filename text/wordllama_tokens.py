"""Tokens and token vectors of wordllama, whose wheel holds both."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

FIRST = 1  # wordllama's token 0; our 0 is padding
SPREAD = 0.5  # standard deviation of the numbers in the table
TEXTS_AT_ONCE = 1_024


class WordLlamaTokens:
    """Byte-pair encoding: every text has tokens, whatever its words.

    Attributes:
        identity: Names the tokenizer; a network is bound to it.

    Raises:
        ModuleNotFoundError: wordllama is not installed.
    """

    def __init__(self):
        try:
            import wordllama
        except ImportError:
            raise ModuleNotFoundError(
                "The package wordllama is not installed, and tokens of texts need it: "
                "pip install 'kytolly[text]'."
            ) from None
        place = Path(wordllama.__file__).parent  # the wheel holds the weights
        self._model = wordllama.WordLlama.load(cache_dir=place, disable_download=True)
        self._model.tokenizer.no_padding()
        self._model.tokenizer.no_truncation()
        self.identity = f"wordllama-{version('wordllama')} l2_supercat"

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Tokens [length] from 1 of each text; none for a blank one."""
        rows = []
        for at in range(0, len(texts), TEXTS_AT_ONCE):
            batch = [
                text.encode("utf-8", "replace").decode() for text in texts[at:][:TEXTS_AT_ONCE]
            ]
            found = self._model.tokenizer.encode_batch(batch, add_special_tokens=False)
            rows += [np.array(one.ids, np.int32) + FIRST for one in found]
        return rows

    def embedding(self) -> np.ndarray:
        """[32,001, 256] float32 vector of each token, 0 for padding."""
        table = np.asarray(self._model.embedding, np.float32)
        return np.concatenate([np.zeros((FIRST, table.shape[1]), np.float32), table]) * (
            SPREAD / table.std()
        )
