"""Why the agent reaches so little of its ceiling: `reformulation-ceiling --collection DIR`.

Dev queries are changed with oracles in place of the parts of the agent, from the candidates down to
the network. Each row has one oracle less than the row above it, so the difference of two rows is
what one part loses. All ranks are those of pools, as in training. No test query is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.benchmarks.suite import Options, Report, Watch
from kytolly.search.index.corpus import BUILTIN
from kytolly.search.index.rank_metrics import metric, relevant_ranks
from kytolly.search.model.candidate_scorer import FIRST_MEAN, CandidateScorer
from kytolly.search.reformulate.choice import SCALES, proposals
from kytolly.search.reformulate.device_env import (
    MAX_LOWERED,
    DeviceQueries,
    is_query_term,
    typed_weight,
    used_proposals,
)
from kytolly.search.reformulate.mining import feedback_counts
from kytolly.search.reformulate.network import NumpyScorer, load_pretrained
from kytolly.search.reformulate.options import AgentOptions, ReformulationOptions
from kytolly.search.reformulate.query import Query, SearchRules
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import QueryTable, make_table
from kytolly.search.reformulate.warm_start import FIRST_TEMPERATURE, warm_network

STEPS = (0.1, 0.3, 1.0)  # changes of a term that the greedy search tries
MORE_TERMS = 100  # of the relevant documents, that an oracle adds to the candidates
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the train queries, for the learning curve
WIDE = AgentOptions(hidden_units=(128, 128), dropout=0.0)
OWN_EPOCHS = 80  # passes of a network that learns the analyzed queries themselves
FREE_STEPS, FREE_RATE = 200, 0.1  # of weights that belong to one query each
MAX_DEV, TRIAL_QUERIES, TRIAL_EPOCHS = 300, 20, 1
# What changes the queries, and the part that it lacks an oracle for, unlike the row above.
ROWS = (
    ("best changes, with terms of relevant documents", ""),
    ("best changes, with mined candidates", "candidates"),
    ("the same within typed_share and max_terms", "limits"),
    ("weights for each query, listwise loss", "loss, greedy choice"),
    ("wide network that learned these queries", "features"),
    ("default network that learned these queries", "size of the network"),
    ("default network that learned train queries", "judgments to learn from"),
)


class Analysis(NamedTuple):
    """The queries of a collection that are analyzed.

    Attributes:
        options: Settings of learning.
        context: The collection.
        queries: [Q] dev queries.
        dev, train: Tables of these, and of the train queries.
        begin: The network that learning begins with; None: a new one.
    """

    options: ReformulationOptions
    context: SearchContext
    queries: Sequence[Query]
    dev: DeviceQueries
    train: DeviceQueries
    begin: CandidateScorer | None


def reformulation_ceiling(options: Options, watch: Watch) -> Report:
    """Replace the parts in turn, and learn from more and more queries."""
    watch.begin(4)
    with watch.turn("mining"):
        found = analysis_of(options.collection or BUILTIN, options.quick)
    fusions, gains = found.dev.fusions, dict[float, list[np.ndarray]]()
    with watch.turn("ceilings"):
        for fusion in fusions:
            gains[fusion] = ceilings(found, fusion)
    with watch.turn("networks that learn the dev queries"):
        for network in own_networks(found):
            for fusion in fusions:
                gains[fusion].append(proposed_gains(network, found.dev, fusion))
    with watch.turn("learning curve"):
        curve = learning_curve(found)
    last = curve[max(curve)]
    for fusion in fusions:
        gains[fusion].append(proposed_gains(last, found.dev, fusion))
    title = f"What the agent lacks to its ceiling on {found.context.collection.name}"
    columns = ["changes by", "lost in"]
    for fusion in fusions:
        columns += [f"gain over {base_name(fusion)}", "lost"]
    rows, data = part_rows(gains)
    notes = [
        f"{len(found.queries)} dev queries, {found.options.retrieval.metric} in pools of "
        f"{found.context.rules.pool_documents} documents, all weights as proposed. Lost: of the "
        "gain of the second row, which the candidates allow.",
        *(selection_note(last, found.dev, fusion) for fusion in fusions),
        *(curve_note(found, count, network) for count, network in curve.items()),
    ]
    return Report(title, columns, rows, notes, data)


def analysis_of(collection: str, quick: bool) -> Analysis:
    """Read and mine a collection.

    Raises:
        ValueError: It has no train or no dev queries that can be used.
    """
    options, most = ReformulationOptions(collection=collection), MAX_DEV
    if quick:
        training = dataclasses.replace(options.training, warm_start_epochs=TRIAL_EPOCHS)
        options, most = dataclasses.replace(options, training=training), TRIAL_QUERIES
    keras.utils.set_random_seed(options.seed)
    context = SearchContext.load(options, ("train", "dev"))
    limits = {"train": options.training.max_queries, "dev": most}
    queries = {
        split: [query for query in context.queries(split, limit) if query.has_relevant]
        for split, limit in limits.items()
        if split in context.collection.judgments
    }
    if not all(queries.get(split) for split in limits):
        raise ValueError(
            f"{collection} lacks train or dev queries that can be used; expected some of both, "
            "because a network learns from the ones and is analyzed on the others."
        )
    fusions = tuple(dict.fromkeys((0.0, context.usual_fusion)))
    tables = {
        split: DeviceQueries(
            make_table(part, context.index, context.documents, context.rules),
            context.rules,
            fusions,
        )
        for split, part in queries.items()
    }
    begin = load_pretrained() if context.encoder_name == "wordllama" else None
    return Analysis(options, context, queries["dev"], tables["dev"], tables["train"], begin)


def ceilings(found: Analysis, fusion: float) -> list[np.ndarray]:
    """[4, Q] gains of what knows the judgments: the first rows of `ROWS`."""
    context, rules = found.context, found.context.rules
    more = [with_relevant_terms(context, query) for query in found.queries]
    wide = rules._replace(max_candidates=rules.max_candidates + MORE_TERMS)
    table = make_table(more, context.index, context.documents, wide)
    free = rules._replace(typed_shares=(None, None), max_terms=wide.max_candidates)
    return [
        greedy_gains(table, free, fusion),
        greedy_gains(found.dev.table, free, fusion),
        greedy_gains(found.dev.table, rules, fusion),
        fitted_gains(found.dev, fusion),
    ]


def with_relevant_terms(context: SearchContext, query: Query) -> Query:
    """The query with the most telling terms of its relevant documents among the candidates."""
    index = context.index
    terms, counts = feedback_counts(index, query.relevant[query.relevant != query.excluded])
    value = index.idf[terms] * np.log1p(counts).sum(axis=0)
    known = {*query.candidates, *query.weights}
    names = [index.terms[terms[place]] for place in np.argsort(-value, kind="stable")]
    added = [name for name in names if name not in known][:MORE_TERMS]
    count = len(query.candidates)
    features = np.insert(query.candidate_features, [count] * len(added), 0.0, axis=0)
    features[count : count + len(added), 0] = 1.0  # anything: a row of zeros is no candidate
    return query._replace(candidates=[*query.candidates, *added], candidate_features=features)


def greedy_gains(table: QueryTable, rules: SearchRules, fusion: float) -> np.ndarray:
    """[Q] gains of the change that raises the true metric most, then the next, until none does.

    It is `baselines.GreedyCeiling` in pools, and within the limits of the rules.
    """
    return np.array([_greedy_gain(table, row, rules, fusion) for row in range(len(table.number))])


def _greedy_gain(table: QueryTable, row: int, rules: SearchRules, fusion: float) -> float:
    columns = table.columns[row].astype(np.float32)
    scores = table.base[row] + np.float32(fusion) * table.cosine[row]
    most_lowered, left = MAX_LOWERED, np.inf  # weight that added terms may still get
    if (share := rules.typed_share(fusion)) is not None:
        most_lowered = min(MAX_LOWERED, 1.0 - share)
        left = (1.0 - share) * float(typed_weight(table.state_features[row]))
    place = np.repeat(np.flatnonzero(columns.any(axis=1)), len(STEPS))
    lowers = is_query_term(table.candidate_features[row])[place]
    size = np.tile(np.array(STEPS, np.float32), len(place) // len(STEPS))
    size = np.where(lowers, np.minimum(size, most_lowered), size)

    def values(changed: np.ndarray) -> np.ndarray:
        relevant = tf.tile(table.relevant[row][np.newaxis], [len(changed), 1])
        count = tf.fill([len(changed)], table.relevant_count[row])
        return metric(rules.metric, relevant_ranks(tf.constant(changed), relevant), count).numpy()

    start = now = float(values(scores[np.newaxis])[0])
    terms = 0
    while True:
        fits = np.flatnonzero(lowers | ((size <= left) & (terms < rules.max_terms)))
        if not len(fits):
            return now - start
        after = values(scores + size[fits, np.newaxis] * columns[place[fits]])
        best = fits[after.argmax()]
        if after.max() <= now + 1e-7:
            return now - start
        now, scores = float(after.max()), scores + size[best] * columns[place[best]]
        if not lowers[best]:
            terms, left = terms + 1, left - float(size[best])
        others = place != place[best]
        place, lowers, size = place[others], lowers[others], size[others]


def fitted_gains(queries: DeviceQueries, fusion: float) -> np.ndarray:
    """[Q] gains of weights that the listwise loss finds for each query alone, judgments known."""
    count, pool = queries.num_queries, queries.table.base.shape[1]
    rows, fusions = tf.range(count), tf.fill([count], fusion)
    wanted = tf.reduce_sum(tf.one_hot(queries.table.relevant, pool), axis=1)
    wanted /= tf.maximum(tf.reduce_sum(wanted, axis=-1, keepdims=True), 1.0)
    numbers = tf.Variable(tf.fill([count, queries.candidates], FIRST_MEAN))
    optimizer = keras.optimizers.Adam(FREE_RATE)
    optimizer.build([numbers])

    @tf.function(autograph=False)
    def improve() -> None:
        with tf.GradientTape() as tape:
            weights = queries.used_weights(rows, queries.weights(rows, numbers), fusions)
            scores = queries.scores(rows, fusions, weights)
            log_shares = tf.nn.log_softmax(scores / FIRST_TEMPERATURE)
            loss = -tf.reduce_sum(wanted * log_shares)
        optimizer.apply(tape.gradient(loss, [numbers]), [numbers])

    for _ in range(FREE_STEPS):
        improve()
    used = queries.used_weights(rows, queries.weights(rows, numbers), fusions).numpy()
    return queries.values(fusion, used) - queries.values(fusion, np.zeros_like(used))


def own_networks(found: Analysis) -> list[NumpyScorer]:
    """A wide network and a default one that learned the dev queries themselves."""
    training = found.options.training
    if training.warm_start_epochs != TRIAL_EPOCHS:
        training = dataclasses.replace(training, warm_start_epochs=OWN_EPOCHS)
    usual = dataclasses.replace(found.options, training=training)
    wide = dataclasses.replace(usual, rl_agent=WIDE)
    return [
        NumpyScorer(warm_network(wide, found.dev, None, None, silent)),
        NumpyScorer(warm_network(usual, found.dev, None, found.begin, silent)),
    ]


def learning_curve(found: Analysis) -> dict[int, NumpyScorer]:
    """Number of train queries -> the network that learned from them; fewer are among the more."""
    order, curve = train_order(found), dict[int, NumpyScorer]()
    for share in SHARES:
        rows = np.sort(order[: max(1, round(share * len(order)))])
        network = warm_network(found.options, found.train, None, found.begin, silent, rows)
        curve[len(rows)] = NumpyScorer(network)
    return curve


def train_order(found: Analysis) -> np.ndarray:
    """[Q] rows of the train queries, in the order in which a learning curve takes them."""
    return np.random.default_rng(found.options.seed).permutation(found.train.num_queries)


def silent(line: str) -> None:
    """Say nothing."""


def proposed_gains(
    network: NumpyScorer,
    queries: DeviceQueries,
    fusion: float,
    scale: float = 1.0,
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """[R] gains of a network's proposals, times a scale."""
    rows = np.arange(queries.num_queries) if rows is None else rows
    weights, _ = proposals(network, queries, fusion, rows)
    features, state = queries.table.candidate_features[rows], queries.table.state_features[rows]
    used = used_proposals(weights * np.float32(scale), features, state, queries.rules, fusion)
    nothing = np.zeros_like(used)
    return queries.values(fusion, used, rows) - queries.values(fusion, nothing, rows)


def part_rows(
    gains: dict[float, list[np.ndarray]],
) -> tuple[list[list[str]], dict[str, dict[str, dict[str, float]]]]:
    """The rows of the table, and their numbers: row -> weight of the cosines -> gain and loss."""
    rows, data = [], dict[str, dict[str, dict[str, float]]]()
    for number, (name, part) in enumerate(ROWS):
        cells, data[name] = [], {}
        for fusion, levels in gains.items():
            gain, possible = float(levels[number].mean()), float(levels[1].mean())
            lost = float(levels[number - 1].mean()) - gain if number else 0.0
            share = lost / max(possible, 1e-9)
            cells += [f"{gain:+.4f}", f"{share:.0%}" if number else ""]
            data[name][f"{fusion:g}"] = {"gain": gain, "lost": share}
        rows.append([name, part, *cells])
    return rows, data


def selection_note(network: NumpyScorer, queries: DeviceQueries, fusion: float) -> str:
    """What is lost by one use of the last network for all queries."""
    uses = np.array([proposed_gains(network, queries, fusion, scale) for scale in SCALES])
    best = int(uses.mean(axis=1).argmax())
    return (
        f"Selection over {base_name(fusion)}: an oracle that takes the best of "
        f"{', '.join(map(str, SCALES))} and 0 of each query's weights gains "
        f"{np.maximum(uses.max(axis=0), 0.0).mean():+.4f}; one that takes {SCALES[0]:g} or 0, "
        f"{np.maximum(uses[0], 0.0).mean():+.4f}; {SCALES[best]:g} for all, "
        f"{uses[best].mean():+.4f}."
    )


def curve_note(found: Analysis, count: int, network: NumpyScorer) -> str:
    """What a network of the learning curve gains."""
    rows = np.sort(train_order(found)[:count][:MAX_DEV])
    parts = [
        f"{proposed_gains(network, found.dev, fusion).mean():+.4f} over {base_name(fusion)} "
        f"({proposed_gains(network, found.train, fusion, rows=rows).mean():+.4f} on those)"
        for fusion in found.dev.fusions
    ]
    return f"Learned from {count:,} train queries: {', '.join(parts)}"


def base_name(fusion: float) -> str:
    """The search that a gain is over."""
    return f"BM25 + {fusion:g} cosines" if fusion else "BM25"
