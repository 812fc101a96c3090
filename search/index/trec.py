"""Rankings in TREC's run format: `query Q0 document rank score tag`, one line per document."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np

from kytolly.record.files import write_output
from kytolly.search.index.files import open_file, short, text_lines
from kytolly.search.index.metrics import Run

TAG = "kytolly"


def write_run(path: str | Path, run: Run, tag: str = TAG) -> None:
    """Write a run file whose order every evaluator keeps.

    trec_eval ignores the rank column, sorts by score as float32 and breaks ties by document id. A
    score that is not below the previous one is therefore written as the next smaller float32.

    Args:
        path: The file; its folder must exist.
        run: Query id -> (document id, score), best first.
        tag: Names the system, without spaces.
    """
    if tag.split() != [tag]:
        raise ValueError(
            f"The tag of a run is {tag!r}; expected a word without spaces, because spaces separate "
            "the columns: choose another."
        )
    lines = []
    for query, ranking in run.items():
        above = np.float32(np.inf)
        for rank, (doc, score) in enumerate(ranking, start=1):
            above = min(np.float32(score), np.nextafter(above, np.float32(-np.inf)))
            lines.append(f"{query} Q0 {doc} {rank} {above:.9g} {tag}\n")
    text = "".join(lines)
    write_output(Path(path), lambda to: to.write_text(text, encoding="utf-8", newline=""))


def write_ranking(run: Run, run_file: str | Path) -> None:
    """Write a TREC run where the option --run-file says.

    Raises:
        ValueError: The file cannot be written.
    """
    try:
        write_run(run_file, run)
    except OSError as error:
        raise ValueError(
            f"{run_file} cannot be written ({error.strerror}), expected a path in a folder that "
            "exists, and room on the disk: choose another --run-file."
        ) from error


def check_replaceable(path: str | Path, option: str) -> None:
    """Refuse an output that is a file already, unless it is empty or a run of ours.

    So no output is an input, by whatever path or link it is named.

    Args:
        path: The output.
        option: Its name, for the message.

    Raises:
        ValueError: The file would be lost.
    """
    if not os.path.isfile(path):  # nothing, a device or a pipe; for the rest, writing says why
        return
    with open_file(path, f"expected a new file: choose another {option}") as file:
        first = file.readline(1_000)
    if first and not re.fullmatch(rb"\S+ Q0 \S+ \d+ \S+ " + TAG.encode() + rb"\n", first):
        raise ValueError(
            f"{path} exists, and it is no run file with the tag {TAG}; expected a new file, or one "
            f"that an earlier command wrote: choose another {option}, or remove it first."
        )


def read_run(path: str | Path) -> dict[str, list[tuple[str, float]]]:
    """A run file as query id -> (document id, score), best first; of equal scores by rank.

    Raises:
        ValueError: A line is not one of a run file; the message names it.
    """
    rows: dict[str, list[tuple[float, int, str]]] = {}
    seen: set[tuple[str, str]] = set()
    for number, line in text_lines(path, "expected a run file in TREC's format: check the path"):
        query, doc, rank, score = _row(f"{path}:{number}", line)
        if (query, doc) in seen:
            raise ValueError(
                f"{path}:{number}: document {doc!r:.80} is twice in the ranking of query "
                f"{query!r:.80}; expected once: remove one of the lines."
            )
        seen.add((query, doc))
        rows.setdefault(query, []).append((-score, rank, doc))
    return {
        query: [(doc, -less) for less, _, doc in sorted(ranking)] for query, ranking in rows.items()
    }


def _row(place: str, line: str) -> tuple[str, str, int, float]:
    fields = line.split()
    try:
        query, _, doc, rank, score, _ = fields
        row = query, doc, int(rank), float(score)
    except ValueError:
        row = None
    if row is None or math.isnan(row[3]):
        raise ValueError(
            f"{place}: found {short(line.strip())}; expected six columns, query Q0 document rank "
            "score tag, with numbers as rank and score: repair this line."
        )
    return row
