"""SQLite's full-text search, FTS5, as a search engine for weighted queries.

FTS5 cannot weight words, so each word is a query of its own. Its score is FTS5's `bm25`, turned
around: SQLite makes the best score the smallest.

Source: sqlite.org/fts5.html (k1 is 1.2, b is 0.75; a word in half of the documents or more has
nearly no weight).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.config.words import nearest
from kytolly.search.index.exports import fts5_phrase, sql_name
from kytolly.search.index.files import open_file, short
from kytolly.search.index.ranking import weighted_best

# TensorFlow's library carries a SQLite of its own, without FTS5. Where TensorFlow was imported
# first, Python's module would take its functions from there (seen with TensorFlow 2.21 on Linux).
# So the module is loaded in a way that prefers the libraries it was linked to. If sqlite3 itself
# was imported after TensorFlow and before this file, it is too late: import sqlite3 first.
_flags = sys.getdlopenflags() if hasattr(os, "RTLD_DEEPBIND") else None  # glibc alone has it
if _flags is not None:
    sys.setdlopenflags(_flags | os.RTLD_DEEPBIND)
try:
    import sqlite3
finally:
    if _flags is not None:
        sys.setdlopenflags(_flags)

EXPECTED = "expected a file of a SQLite database"
IS_FTS5 = re.compile(r"\A\s*CREATE\s+VIRTUAL\s+TABLE\b.*?\bUSING\s+[\"'`\[]?fts5\b", re.I | re.S)
ROWID = "rowid"


class FTS5Engine:
    """An FTS5 table of a database that is opened for reading only.

    Args:
        path: File of the database.
        table: Its FTS5 table.
        id_column: Column with the documents' ids, or "rowid".
        text_column: Column that is searched; None: all of them.
        doc_ids: Ids that the documents must have; None: do not check.

    Raises:
        ValueError: One of them is not there, or is something else.
    """

    def __init__(
        self,
        path: str | Path,
        table: str,
        id_column: str = "id",
        text_column: str | None = None,
        doc_ids: Sequence[str] | None = None,
    ):
        self.path, self.table = Path(path), table
        open_file(path, EXPECTED).close()
        try:
            uri = f"{self.path.resolve().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True)
        except sqlite3.Error as error:
            raise self._refusal(error) from None
        try:
            self._check(id_column, text_column)
            # Only one text column is asked for by name: tables without positions know no filters.
            column = f"{sql_name(text_column)} : " if text_column is not None else ""
            self._filter = "" if column and self._indexed == [text_column] else column
            name, id_name = sql_name(table), sql_name(id_column)
            self._id_of = f"SELECT {id_name} FROM {name} WHERE rowid = ?"
            self._scores = f"SELECT rowid, -bm25({name}) FROM {name} WHERE {name} MATCH ?"
            if doc_ids is not None:
                self._check_ids(doc_ids, f"SELECT {id_name} FROM {name}")
        except BaseException:
            self.close()
            raise

    def search(self, weights: Mapping[str, float], top: int) -> tuple[list[str], np.ndarray]:
        """The best documents for a weighted query, as in `engines.SearchEngine`.

        Of equal scores the row that was inserted first comes first.
        """
        lists = [(weight, *self._postings(word)) for word, weight in weights.items()]
        rowids, scores = weighted_best(lists, top)
        return self._ids(rowids), scores

    def word_scores(self, word: str) -> tuple[list[str], np.ndarray]:
        """Every document that a word alone finds, and the scores; all above 0."""
        rowids, scores = self._postings(word)
        return self._ids(rowids), scores

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _postings(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        rows = self._rows(self._scores, self._filter + fts5_phrase(word))
        return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows])

    def _ids(self, rowids: np.ndarray) -> list[str]:
        return [self._id(self._rows(self._id_of, int(rowid))[0][0]) for rowid in rowids]

    def _id(self, value: Any) -> str:
        if value is None:
            raise ValueError(
                f"a document of {self.table} in {self.path} has no id (a contentless table keeps "
                f'none): fill the column, or choose id_column="{ROWID}".'
            )
        return str(value)

    def _check(self, id_column: str, text_column: str | None) -> None:
        """Refuse a file, a table or columns that cannot be searched; note what is indexed."""
        tables = dict(self._rows("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        if self.table not in tables:
            names = [name for name, sql in tables.items() if IS_FTS5.match(sql or "")]
            raise ValueError(
                f"{self.path} has no table {short(self.table)}; its FTS5 tables are: "
                f"{', '.join(names) or 'none'}.{nearest(self.table, names)}"
            )
        if not IS_FTS5.match(tables[self.table] or ""):
            raise ValueError(
                f"the table {short(self.table)} in {self.path} is no FTS5 table; expected one that "
                "CREATE VIRTUAL TABLE ... USING fts5 made: make one of its texts."
            )
        columns = [row[1] for row in self._rows(f"PRAGMA table_info({sql_name(self.table)})")]
        quotes = "[\"'`\\]]?"
        self._indexed = [
            name
            for name in columns
            if not re.search(
                rf"[(,]\s*[\"'`\[]?{re.escape(name)}{quotes}\s+UNINDEXED",
                tables[self.table],
                re.IGNORECASE,
            )
        ]
        for setting, name, known in (
            ("id_column", id_column, [*columns, ROWID]),
            ("text_column", text_column, self._indexed),
        ):
            if name is not None and name not in known:
                what = "is not indexed" if name in columns else "is no column"
                raise ValueError(
                    f"{setting} {short(name)} {what} of {self.table} in {self.path}; expected one "
                    f"of {', '.join(known)}.{nearest(name, known)}"
                )

    def _check_ids(self, doc_ids: Sequence[str], query: str) -> None:
        stored, expected = {self._id(row[0]) for row in self._rows(query)}, set(doc_ids)
        if stored != expected:
            other = min(stored ^ expected)
            raise ValueError(
                f"{self.table} in {self.path} has {len(stored):,} ids, and the collection has "
                f"{len(expected):,}; {len(stored ^ expected):,} are in one of them only (the "
                f"first: {other!r:.80}): put the same documents into both, or choose another "
                "id_column."
            )

    def _rows(self, query: str, *values: Any) -> list[tuple]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._refusal(error) from None

    def _refusal(self, error: sqlite3.Error) -> ValueError:
        words = str(error)
        if "no such module" in words:
            advice = (
                f"this process's SQLite {sqlite3.sqlite_version} was built without FTS5: if "
                "TensorFlow was imported before sqlite3, import sqlite3 first"
            )
        elif "not a database" in words:
            advice = f"{EXPECTED}: give another path"
        else:
            advice = "check the table with the program that wrote it"
        return ValueError(f"{self.path} cannot be searched (SQLite says: {words}); {advice}.")
