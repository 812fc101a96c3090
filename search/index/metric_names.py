"""Names of metrics, read without loading TensorFlow."""

from __future__ import annotations

import difflib
import re

OTHER_NAMES = {"map": "ap", "r": "recall", "rr": "mrr", "ndcg_cut": "ndcg", "dcg": "ndcg"}
MEASURES = {"ndcg": "nDCG", "ap": "AP", "recall": "R", "mrr": "RR"}  # as ir-measures calls them


def metric_parts(name: str) -> tuple[str, int | None]:
    """Kind (ndcg, ap, recall or mrr) and cutoff (None for ap) of a metric's name.

    Raises:
        ValueError: No such metric; the message names the nearest one.
    """
    text = name.strip().lower()
    if text == "ap":
        return "ap", None
    match = re.fullmatch(r"(ndcg|recall|mrr)@([1-9]\d{0,6})", text)
    if match:
        return match[1], int(match[2])
    kind, _, depth = text.partition("@")
    kind = OTHER_NAMES.get(kind, kind)
    near = (difflib.get_close_matches(kind, list(MEASURES), n=1, cutoff=0.4) or ["ndcg"])[0]
    depth = str(int(depth)) if depth.isdecimal() and 0 < int(depth) < 10**7 else "10"
    raise ValueError(
        f"No metric {name!r}; expected ndcg@k, ap, recall@k or mrr@k with a whole k from 1: "
        f"did you mean {near if near == 'ap' else f'{near}@{depth}'!r}?"
    )


def cutoff(name: str) -> int | None:
    """Number of ranks that count, such as 10 for ndcg@10; None: all ranks count."""
    return metric_parts(name)[1]
