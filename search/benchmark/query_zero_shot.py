"""What the package's network gains without a run: `reformulation-zero-shot --collection DIR`.

The test queries are searched for as they were typed, and as `kytolly reformulate pretrained`
changes them, in the language of the documents. No judgment is used but to compare the two.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from kytolly.benchmarks.suite import Options, Report, Watch
from kytolly.search.index.corpus import BUILTIN, load_collection
from kytolly.search.reformulate.held_out import (
    AGENT,
    AGENT_FUSED,
    BM25,
    FUSED,
    System,
    TestQueries,
    difference,
    tested_gains,
    with_choice,
)
from kytolly.search.reformulate.reformulator import Reformulator

COSINES = 1.0


def reformulation_zero_shot(options: Options, watch: Watch) -> Report:
    """Search with and without the package's changes, by BM25 alone and with cosines."""
    watch.begin(3)
    rows, data = [], []
    with tempfile.TemporaryDirectory() as folder:
        with watch.turn("index and candidates"):
            texts = options.collection or BUILTIN
            agent = Reformulator.pretrained(texts)
            chosen = agent.context.options
            judged = load_collection(texts, ("test",))
            agent.context = dataclasses.replace(agent.context, collection=judged)
            queries = TestQueries(agent.context, Path(folder))
            typed = queries.typed_weights()
        for fusion, names in {0.0: (BM25, AGENT), COSINES: (FUSED, AGENT_FUSED)}.items():
            with watch.turn(names[1]):
                system = with_choice(agent, fusion)
                base = queries.search(names[0], System(typed, fusion))
                weights = [plan.weights for plan in queries.plans(system)]
                outcome = queries.search(names[1], System(weights, fusion))
                row = difference(outcome, base, queries.metric)
                expected = tested_gains(queries, system, base)
            mean, ratio = base.values[queries.metric].mean(), outcome.drifted / max(base.drifted, 1)
            correlation = expected["correlation"] if expected else float("nan")
            gain = f"{row['difference']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f})"
            shares = f"{row['changed']:.1%}", f"{row['hurt']:.1%}"
            label = f"BM25 + {fusion:g} cosines" if fusion else "BM25"
            rows.append(
                [label, f"{mean:.4f}", gain, *shares, f"{correlation:+.2f}", f"{ratio:.2f}x"]
            )
            data.append({"fusion": fusion, "base": float(mean), "drift": ratio, "gain": row}
                        | {"correlation": correlation})  # fmt: skip
    title = f"The package's network on {Path(chosen.collection).name}, test queries"
    columns = ["", queries.metric, "gain", "changed", "hurt", "correlation", "drift"]
    notes = [
        f"{len(typed):,} queries, language {chosen.retrieval.language}; 95% intervals by a paired "
        "bootstrap. A query is changed where that is expected to pay; the correlation is of "
        "expected and true gains of all changes.",
        "Drift: documents in the first ten that hold none of the rarer half of the typed words, "
        "against the same search of the query as it was typed.",
    ]
    return Report(title, columns, rows, notes, {"rows": data})
