"""One query at a time through the Python interface, and where its time goes.

What is timed is `Reformulator.reformulate` for a query that was never seen before: the search of
the query as it was typed, mining, the package's network, and the search of the reformulated query,
both with cosines, ten documents each. The whole is timed without looking inside. The parts are
timed on other queries, each without the parts inside it, so that they add up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Literal, ParamSpec, TypeVar
from unittest import mock

from kytolly.benchmarks.loops import configure_without_cache
from kytolly.benchmarks.program import Program, Result, run_program
from kytolly.config.fields import setting
from kytolly.search.benchmark.query_scale import DOCUMENTS, collection_folder
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions

P = ParamSpec("P")
R = TypeVar("R")

QUERIES = 200  # timed as a whole, and as many again in parts
FIRST = 20  # queries before anything is timed
FUSION = 1.0
TOP = 10  # documents of a ranking
PARTS = ("mining", "features", "embedding", "network", "BM25", "cosines", "ranking", "rest")


@dataclasses.dataclass(frozen=True)
class LatencyOptions:
    """The size of a collection, and how many queries are timed."""

    documents: int = setting(DOCUMENTS[-1], "documents of the collection")
    queries: int = setting(QUERIES, "queries that are timed as a whole")
    encoder: Literal["auto", "wordllama", "hash"] = setting("auto", "who embeds texts")
    collection: str | None = setting(None, "measure this folder instead of one made by rule")


def measure_latency(latency: LatencyOptions) -> Result:
    """Measure one collection in this process."""
    configure_without_cache()
    queries = {"dev": FIRST + 2 * latency.queries}
    with collection_folder(latency.collection, latency.documents, queries) as folder:
        retrieval = RetrievalOptions(encoder=latency.encoder)
        options = ReformulationOptions(collection=folder, retrieval=retrieval)
        return measure(options, latency.queries)


def measure(options: ReformulationOptions, count: int) -> Result:
    """Time `count` queries as a whole and as many in parts, or all that there are."""
    from kytolly.search.reformulate.choice import Choices
    from kytolly.search.reformulate.network import PRETRAINED
    from kytolly.search.reformulate.reformulator import Reformulator, load_scorer
    from kytolly.search.reformulate.search import SearchContext

    context = SearchContext.load(options, ())
    reformulator = Reformulator(context, load_scorer(PRETRAINED), Choices(None, {}), FUSION)
    queries = list(dict.fromkeys(context.collection.queries))
    count = min(count, (len(queries) - FIRST) // 2)
    if count < 1:
        raise ValueError(
            f"{options.collection} has {len(queries)} different queries, expected at least "
            f"{FIRST + 2}: give a collection with more queries."
        )
    for query in queries[:FIRST]:
        reformulator.reformulate(query, TOP)
    wall, cpu, added = [], [], 0
    for query in queries[FIRST : FIRST + count]:
        began, spent = time.perf_counter(), time.process_time()
        result = reformulator.reformulate(query, TOP)
        cpu.append(1e3 * (time.process_time() - spent))
        wall.append(1e3 * (time.perf_counter() - began))
        added += len(result.added)
    parts = Parts()
    with parts.measure_parts():
        for query in queries[FIRST + count : FIRST + 2 * count]:
            with parts.part("rest"):
                reformulator.reformulate(query, TOP)
    return {
        "documents": context.index.documents,
        "terms": len(context.index.terms),
        "words": context.index.mean_length,
        "encoder": context.encoder_name,
        "queries": count,
        "added": added / count,
        "cpu_ms": statistics.median(cpu),
        "wall_ms": statistics.median(wall),
        "slow_ms": sorted(cpu)[int(0.9 * count)],
        "parts_ms": {name: 1e3 * parts.seconds[name] / count for name in PARTS},
    }


class Parts:
    """CPU seconds of this thread in each part, without the parts inside it."""

    def __init__(self):
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._inner: list[float] = []  # seconds of the parts inside each open one

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        self._inner.append(0.0)
        began = time.thread_time()
        yield
        spent = time.thread_time() - began
        self.seconds[name] += spent - self._inner.pop()
        if self._inner:
            self._inner[-1] += spent

    @contextlib.contextmanager
    def measure_parts(self) -> Iterator[None]:
        """Time the parts of every query within the block."""
        from kytolly.search.index.bm25 import BM25Index
        from kytolly.search.index.embedding import EmbeddingCache
        from kytolly.search.index.fusion import DocumentVectors
        from kytolly.search.reformulate.mining import Miner
        from kytolly.search.reformulate.mining_features import MiningFeatures
        from kytolly.search.reformulate.network import NumpyScorer
        from kytolly.search.reformulate.search import SearchContext

        methods = [
            ("mining", Miner, "mine"),
            ("features", MiningFeatures, "term_features"),
            ("features", MiningFeatures, "query_features"),
            ("embedding", EmbeddingCache, "get_batch"),
            ("network", NumpyScorer, "__call__"),
            ("BM25", BM25Index, "scores"),
            ("cosines", DocumentVectors, "scores"),
            ("ranking", SearchContext, "rank_all"),
        ]
        with contextlib.ExitStack() as stack:
            for name, kind, method in methods:
                timer = self._timer(name, getattr(kind, method))
                stack.enter_context(mock.patch.object(kind, method, timer))
            yield

    def _timer(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.part(name):
                return function(*args, **kwargs)

        return run


PROGRAM = Program(measure_latency, (LatencyOptions,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
