"""What typed words must keep, and what it costs: `reformulation-drift --collection DIR`.

One agent learns without a limit (`typed_share: none`, no PPO). Its proposals at full weight are
then used within each limit, on the test queries. So the rows differ in the limit alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from kytolly.benchmarks.suite import Options, Report, Watch
from kytolly.search.index.corpus import BUILTIN
from kytolly.search.reformulate.choice import Choice
from kytolly.search.reformulate.held_out import (
    BM25,
    FUSED,
    System,
    TestQueries,
    difference,
    with_choice,
)
from kytolly.search.reformulate.options import (
    ReformulationOptions,
    RetrievalOptions,
    TrainingOptions,
)
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.train import train

SHARES = (None, 0.5, 0.67, 0.78, 0.85)
TRIAL = (None, 0.78)


def reformulation_drift(options: Options, watch: Watch) -> Report:
    """Train once, and search with every limit."""
    shares = TRIAL if options.quick else SHARES
    watch.begin(1 + len(shares))
    chosen = ReformulationOptions(
        collection=options.collection or BUILTIN,
        retrieval=RetrievalOptions(typed_share=None, fused_typed_share=None),
        training=TrainingOptions(epochs=0),
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        with watch.turn("training"):
            train(chosen, log_dir=run)
        agent = Reformulator.load(run)
        context = SearchContext.load(agent.context.options, ("test",), saved=run)
        queries, fusion = TestQueries(context, Path(folder)), context.usual_fusion
        typed = queries.typed_weights()
        fusions = {0.0: BM25, **({fusion: FUSED} if fusion else {})}
        bases = {
            weight: queries.search(name, System(typed, weight)) for weight, name in fusions.items()
        }
        rows, data = [], []
        for share in shares:
            with watch.turn(f"typed_share {share}"):
                agent.context = context.with_shares(share, share)
                for weight, base in bases.items():
                    everything = with_choice(agent, weight, Choice(weight, 1.0))
                    plans = [plan.weights for plan in queries.plans(everything)]
                    outcome = queries.search("limited", System(plans, weight))
                    row = difference(outcome, base, queries.metric)
                    ratio = outcome.drifted / max(base.drifted, 1)
                    over = f"BM25 + {weight:g} cosines" if weight else "BM25"
                    gain = f"{row['difference']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f})"
                    label = "none" if share is None else f"{share:g}"
                    rows.append([label, over, gain, f"{row['hurt']:.1%}", f"{ratio:.2f}x"])
                    data.append(
                        {"typed_share": share, "fusion": weight, "drift": ratio, "gain": row}
                    )
    title = f"Least share of typed words on {Path(chosen.collection).name}, test queries"
    columns = ["typed_share", "over", f"gain in {queries.metric}", "hurt", "drift"]
    notes = [
        f"{len(typed):,} queries; 95% intervals by a paired bootstrap. All that a warm start "
        "proposes, at full weight.",
        "Drift: documents in the first ten that hold none of the rarer half of the typed words, "
        "against the same search of the query as it was typed.",
    ]
    return Report(title, columns, rows, notes, {"rows": data})
