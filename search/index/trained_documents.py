"""The documents that a run was trained with, as hashes: a collection that has grown is known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kytolly.search.index.collection import text_digest
from kytolly.search.index.files import read_arrays, write_arrays

FILE = "documents.npz"  # in the folder of a run
SAME_SHARE = 0.9  # of the documents; with fewer in common, a collection is another one
HASH_BYTES = 8


class Overlap(NamedTuple):
    """The documents that a collection has in common with those of a run.

    Attributes:
        same: Number of documents that both have.
        new: Number of those that only the collection has.
        gone: Number of those that only the run was trained with.
    """

    same: int
    new: int
    gone: int

    @property
    def share(self) -> float:
        """The share of the documents in common, of the larger of the two."""
        return self.same / max(self.same + self.new, self.same + self.gone, 1)

    @property
    def is_same_collection(self) -> bool:
        """True where so many documents are the same that what a run learned holds for them."""
        return self.share >= SAME_SHARE

    def text(self, name: str) -> str:
        """What to tell the user of a run whose documents are nearly those of the collection."""
        gone = f", and {self.gone:,} of its own are gone" if self.gone else ""
        verb = "is" if self.new == 1 else "are"
        return (
            f"{name} was trained with {self.same:,} of these {self.same + self.new:,} documents: "
            f"{self.new:,} {verb} new{gone}. What it learned is used; to learn from these "
            "documents, train again."
        )


class TrainedDocuments(NamedTuple):
    """Hashes of the documents that a run was trained with.

    Attributes:
        digest: `text_digest` of their texts.
        hashes: [documents] uint64, ascending, of their texts.
    """

    digest: str
    hashes: np.ndarray

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> TrainedDocuments:
        """Those of a collection."""
        digests = (
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()
            for text in texts
        )
        return cls(text_digest(texts), np.sort(np.frombuffer(b"".join(digests), "<u8")))

    @classmethod
    def read(cls, folder: Path) -> TrainedDocuments | None:
        """Those of a run; None where an earlier version trained it, or the file is damaged."""
        try:
            digest, hashes = read_arrays(folder / FILE, ("digest", "hashes"))
        except Exception:  # zipfile, zlib and numpy each have their own
            return None
        if digest.shape != () or hashes.ndim != 1 or hashes.dtype != np.uint64:
            return None
        return cls(str(digest), np.sort(hashes))

    def save(self, folder: Path) -> None:
        """Write them into the folder of a run."""
        write_arrays(folder / FILE, {"digest": np.array(self.digest), "hashes": self.hashes})

    def overlap(self, texts: Sequence[str]) -> Overlap:
        """What these documents and those of a collection have in common; equal texts count each."""
        others = TrainedDocuments.of_texts(texts).hashes
        own, own_counts = np.unique(self.hashes, return_counts=True)
        given, given_counts = np.unique(others, return_counts=True)
        _, in_own, in_given = np.intersect1d(own, given, assume_unique=True, return_indices=True)
        same = int(np.minimum(own_counts[in_own], given_counts[in_given]).sum())
        return Overlap(same, len(others) - same, len(self.hashes) - same)
