"""A report of the terms that an agent changes: those that help, change nothing, or hurt.

A term is good, neutral or bad by its true one-step gain: what it alone changes, with the weight
that the agent gives it, or the usual weight where the agent leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.search.index.rank_metrics import metric, relevant_ranks
from kytolly.search.reformulate.mining_features import MiningRules
from kytolly.search.reformulate.reformulator import Plan
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import QueryTable, make_table
from kytolly.search.text.classification_report import ClassificationReport, write_report

CLASSES = ("good", "neutral", "bad")
RIGHT = (0, 1, 1)  # what to do with a term of each class: change it, or leave it
ACTIONS = {"candidate": ("added", "left"), "query_term": ("lowered", "left")}
NOUNS = {"candidate": "candidate terms", "query_term": "query terms"}
MIN_GAIN = 1e-6  # of the metric; less is rounding
USUAL_WEIGHT = MiningRules().weight  # and the share of its weight that a query's term loses
MAX_QUERIES = 300  # drawn by the seed
AT_ONCE = 32  # queries whose tables are made at once


class Terms(NamedTuple):
    """Terms that an agent decided on.

    Attributes:
        gain: [n] change of the metric by each term alone.
        changed: [n] bool, true where the agent adds it or, for a term of the query, lowers it.
        in_query: [n] bool, true for terms of the query.
    """

    gain: np.ndarray
    changed: np.ndarray
    in_query: np.ndarray


def report_terms(
    context: SearchContext, plans: Sequence[Plan], fusion: float, run_dir: Path
) -> dict[str, Any]:
    """Compare what plans do with the gain of each term alone, and write tables and plots.

    Args:
        context: The collection, and how it is searched.
        plans: The agent's plans for queries that have their judgments.
        fusion: Weight of the cosines in the searches.
        run_dir: Receives `candidate_confusion_matrix.png` and `.csv`,
            `candidate_class_metrics.csv`, and the same for query terms.

    Returns:
        For candidates and for query terms the metrics of each class; without a term, nothing.
    """
    usable = [plan for plan in plans if plan.query is not None and plan.query.has_relevant]
    if len(usable) > MAX_QUERIES:
        drawn = np.random.default_rng(context.options.seed).permutation(len(usable))
        usable = [usable[place] for place in np.sort(drawn[:MAX_QUERIES])]
    if not usable:
        return {}
    parts = [
        terms_of(context, usable[first : first + AT_ONCE], fusion)
        for first in range(0, len(usable), AT_ONCE)
    ]
    terms = Terms(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    summary: dict[str, Any] = {"queries": len(usable)}
    for kind, in_query in (("candidate", False), ("query_term", True)):
        rows = terms.in_query == in_query
        if rows.any():
            report = term_report(terms.gain[rows], terms.changed[rows], kind)
            write_report(run_dir, report, 0, f"{kind}_")
            summary[kind] = term_summary(report)
    return summary


def terms_of(context: SearchContext, plans: Sequence[Plan], fusion: float) -> Terms:
    """The terms of some plans, all of which have a query with a relevant document."""
    queries = [plan.query for plan in plans if plan.query is not None]
    table = make_table(queries, context.index, context.documents, context.rules)
    count, wide = len(queries), context.rules.max_candidates
    weights = np.full((count, wide), USUAL_WEIGHT, np.float32)
    changed, in_query = np.zeros((count, wide), bool), np.zeros((count, wide), bool)
    for row, plan in enumerate(plans):
        in_query[row, len(queries[row].candidates) :] = True
        for place, weight in plan.changes.items():
            changed[row, place], weights[row, place] = True, weight
    gains = term_gains(table, context.rules.metric, fusion, weights)
    there = np.arange(wide) < np.array([[query.options] for query in queries])
    return Terms(gains[there], changed[there], in_query[there])


def term_gains(table: QueryTable, name: str, fusion: float, weights: np.ndarray) -> np.ndarray:
    """[Q, N] change of a metric in the pool, by each term alone.

    Args:
        table: `Q` queries.
        name: The metric, such as "ndcg@10".
        fusion: Weight of the cosines.
        weights: [Q, N] weight with which a term is added, or the share that a query's term loses.
    """
    gains = np.zeros(weights.shape, np.float32)
    for row, (base, cosine) in enumerate(zip(table.base, table.cosine, strict=True)):
        start = base + np.float32(fusion) * cosine
        changed = start + weights[row, :, np.newaxis] * table.columns[row].astype(np.float32)
        scores = np.concatenate([start[np.newaxis], changed])
        relevant = np.broadcast_to(table.relevant[row], (len(scores), table.relevant.shape[1]))
        ranks = relevant_ranks(tf.constant(scores), tf.constant(relevant))
        values = metric(name, ranks, tf.fill([len(scores)], table.relevant_count[row])).numpy()
        gains[row] = values[1:] - values[0]
    return gains


def term_report(gain: np.ndarray, changed: np.ndarray, kind: str) -> ClassificationReport:
    """The share of right actions for good, neutral and bad terms.

    It is right to change a good term and to leave the others. The precision of a class is the share
    of right actions among all actions of that kind, its recall that among the terms of the class.

    Args:
        gain: [n] gain of each term alone.
        changed: [n] bool, true where the agent changes it.
        kind: A key of `ACTIONS`.
    """
    true = np.where(gain > MIN_GAIN, 0, np.where(gain < -MIN_GAIN, 2, 1))
    counts = np.zeros((len(CLASSES), 2), int)
    np.add.at(counts, (true, np.where(changed, 0, 1)), 1)
    right = np.zeros_like(counts)
    right[np.arange(len(CLASSES)), RIGHT] = counts[np.arange(len(CLASSES)), RIGHT]
    support, most = counts.sum(axis=1), np.maximum(counts.sum(axis=0), 1)
    precision = (right.sum(axis=0) / most)[list(RIGHT)]
    recall = right.sum(axis=1) / np.maximum(support, 1)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
    return ClassificationReport(
        classes=CLASSES,
        counts=counts,
        precision=precision,
        recall=recall,
        f1=f1,
        macro_f1=float(f1[support > 0].mean()),
        weighted_f1=float(np.average(f1, weights=support)),
        accuracy=float(right.sum() / counts.sum()),
        predictions=ACTIONS[kind],
        right=RIGHT,
        noun=NOUNS[kind],
        axes=("gain of the term alone", "what the agent does"),
    )


def term_summary(report: ClassificationReport) -> dict[str, Any]:
    """A report for `result.json`."""
    summary = report.summary()
    classes = {}
    for row, counts in zip(report.rows(), report.counts.tolist(), strict=True):
        name, precision, recall, f1, support = row
        actions = dict(zip(report.columns, counts, strict=True))
        metrics = {"precision": precision, "recall": recall, "f1": f1, "support": support}
        classes[name] = {**actions, **metrics}
    return {**summary, "classes": classes}


def term_lines(terms: Mapping[str, Any], name: str, used: bool) -> Iterator[str]:
    """The tables as `result.json` has them, for a reader.

    Args:
        terms: The report of `report_terms`.
        name: The metric.
        used: The run uses what the network proposes.
    """
    for kind, (action, other) in ACTIONS.items():
        if kind not in terms:
            continue
        of_kind, noun = terms[kind], NOUNS[kind]
        proposed = "" if used else " (proposals that are not used)"
        yield ""
        yield (
            f"{of_kind[noun]:,} {noun} of {terms['queries']} queries, by what each alone does to "
            f"{name}{proposed}"
        )
        yield f"{'':8}{action:>9}{other:>9}  precision  recall     F1"
        for label, row in of_kind["classes"].items():
            yield (
                f"{label:<8}{row[action]:>9,}{row[other]:>9,}  {row['precision']:>9.3f}  "
                f"{row['recall']:>6.3f}  {row['f1']:>5.3f}"
            )
        weakest = of_kind["weakest_class"]
        if weakest["confused_with"]:
            yield (
                f"Weakest: {weakest['name']} terms, {weakest['times']:,} of which are "
                f"{weakest['confused_with']}"
            )
