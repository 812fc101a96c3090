"""Query reformulation, compiled and one query at a time: episodes a second, and what they cost.

Three flows train the same network on the same queries for the same rewards, updates included:
the compiled one, and the two of `search.benchmark.query_flow`, the usual program and the fastest
that plays one query at a time. What is counted in the compiled flow and in the usual program:

- *Embedding call*: a text given to the encoder. The compiled flow embeds each text once, before
  training; the usual program embeds a query, its words and its candidates in every episode. The
  documents are embedded once for both, and count for the compiled flow alone.
- *Search call*: a scoring of the whole collection for a weighted query. The compiled flow makes two
  for each query before training, one to mine candidates and one for the pool; the usual program
  makes three in every episode: to mine, for the query as it was typed, and with the added terms.
- *Term scored*: a scoring of the whole collection for a single term, of which a search has one for
  each term of its query. Here the compiled flow's columns count, too: one for each candidate of
  each query, looked up in the index once, before training. They are no searches.

Rewards of the compiled flow are products with columns on the device, over the pool of a query:
neither searches nor scorings of the collection. What is made before training counts in full, spread
over the episodes of a run.

    python -m kytolly.search.benchmark.reformulation --flow compiled --collection builtin
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from kytolly.benchmarks.loops import configure_without_cache
from kytolly.benchmarks.program import Program, Result, Span, run_program
from kytolly.benchmarks.suite import Contender, Options, Report, Watch, comparison
from kytolly.config.fields import setting
from kytolly.config.ppo import PPOConfig
from kytolly.search.reformulate.mining import NO_CANDIDATE
from kytolly.search.reformulate.options import ReformulationOptions

if TYPE_CHECKING:
    from kytolly.search.model.candidate_scorer import CandidateScorer
    from kytolly.search.reformulate.device_env import DeviceQueries
    from kytolly.search.reformulate.query import Query
    from kytolly.search.reformulate.search import SearchContext
    from kytolly.search.reformulate.table import QueryTable

COMPILED, SEQUENTIAL, ONE_QUERY = "compiled", "sequential", "one-query"
TITLES = {
    ONE_QUERY: "one query, rank_bm25",
    SEQUENTIAL: "one query, sparse index",
    COMPILED: "compiled",
}
TURNS = 3
SECONDS = 10.0  # of a turn
KINDS = ("embedding calls", "search calls", "terms scored")


class Flow(Protocol):
    """A flow that is measured."""

    @property
    def counts(self) -> Sequence[int]:
        """Of KINDS so far."""
        ...

    def ready(self) -> None:
        """Compile, and play a little."""
        ...

    def run(self, seconds: float) -> int:
        """Train for at least so long; returns the episodes played."""
        ...


class Ground(NamedTuple):
    """The common start of all flows.

    Attributes:
        context: Collection, index and encoder.
        queries: The training queries.
        table: The same as arrays.
        fusions: Weights of the cosines; in a pass, each query has an episode with each.
        seconds: Time that making all this took.
        counts: Calls of each of KINDS that making it took.
    """

    context: SearchContext
    queries: list[Query]
    table: QueryTable
    fusions: tuple[float, ...]
    seconds: float
    counts: tuple[int, ...]

    @property
    def pass_episodes(self) -> int:
        """Episodes of a pass over the training queries."""
        return len(self.fusions) * len(self.queries)


def prepare(options: ReformulationOptions) -> Ground:
    """Collection, index, candidates and tables of the training queries."""
    from kytolly.search.reformulate.search import SearchContext
    from kytolly.search.reformulate.table import make_table

    began = time.perf_counter()
    context = SearchContext.load(options, ("train",))
    mined = context.queries("train")
    queries = [query for query in mined if query.has_relevant]
    if not queries:
        raise ValueError(f"no training query of {options.collection} can be used: check its qrels.")
    table = make_table(queries, context.index, context.documents, context.rules)
    without = sum(skip.reason == NO_CANDIDATE for skip in context.skipped["train"])
    searches = len(mined) + without + len(queries)
    terms = sum(len(query.weights) for query in [*mined, *queries])
    terms += sum(query.options for query in queries)
    embedded = context.cache.misses + len(context.collection.texts)
    seconds, counts = time.perf_counter() - began, (embedded, searches, terms)
    fusions = tuple(dict.fromkeys((0.0, context.usual_fusion)))
    return Ground(context, queries, table, fusions, seconds, counts)


class CompiledFlow:
    """The loop that `train_optimized.py` runs, without evaluation, logging and checkpoints.

    Args:
        env: The training queries.
        network: Learns.
        cfg: PPO's settings.
        device: Name of the device.
    """

    counts = (0, 0, 0)  # nothing is embedded or searched in the loop

    def __init__(self, env: DeviceQueries, network: CandidateScorer, cfg: PPOConfig, device: str):
        from kytolly.agent.make_agent import make_agent
        from kytolly.loop.env_runner import make_env_runner

        runner = make_env_runner(cfg, env)
        self.loop = runner.loop(make_agent(cfg, runner.spec, network), device)
        self.rollout = cfg.num_envs * cfg.rollout_steps

    def ready(self) -> None:
        """Compile, and make one rollout with its updates."""
        self.loop.run(0)
        self.run(0.0)

    def run(self, seconds: float) -> int:
        """Train for at least so long; returns the episodes played."""
        began, episodes = time.perf_counter(), 0
        while True:
            episodes += int(self.loop.run(self.rollout).episodes)
            if time.perf_counter() - began >= seconds:
                return episodes


def make_flow(name: str, ground: Ground, device: str) -> Flow:
    """A flow with a network of its own, of the same size and with the same first weights."""
    import keras

    from kytolly.search.benchmark.query_flow import OneQueryFlow, SequentialFlow
    from kytolly.search.reformulate.device_env import DeviceQueries
    from kytolly.search.reformulate.network import copied_scorer, make_scorer
    from kytolly.search.reformulate.ppo_training import ppo_config

    context, table, fusions = ground.context, ground.table, ground.fusions
    keras.utils.set_random_seed(context.options.seed)
    network = copied_scorer(make_scorer(table, context.options.rl_agent), 0.0)
    # No update is left out for the policies being too far apart: all flows do all of their work.
    cfg = dataclasses.replace(ppo_config(context.options, ground.pass_episodes, 1), target_kl=None)
    if name == COMPILED:
        env = DeviceQueries(table, context.rules, fusions, context.options.training.term_cost)
        return CompiledFlow(env, network, cfg, device)
    if name == SEQUENTIAL:
        rows = cfg.env_steps_per_iteration
        minibatch = rows // cfg.num_minibatches
        return SequentialFlow(context, ground.queries, fusions, network, cfg, rows, minibatch)
    return OneQueryFlow(context, ground.queries, fusions, network, cfg)


def measure_turn(name: str, flow: Flow, ground: Ground, seconds: float) -> Result:
    """One turn of a flow that is ready."""
    before = list(flow.counts)
    with Span() as span:
        episodes = flow.run(seconds)
    calls = [now - then for now, then in zip(flow.counts, before, strict=True)]
    prepared, options = name != ONE_QUERY, ground.context.options
    return {
        "name": name,
        "collection": options.collection,
        "documents": len(ground.context.collection.texts),
        "queries": len(ground.queries),
        "episodes": episodes,
        "wall_seconds": span.wall_seconds,
        "cpu_seconds": span.cpu_seconds,
        "calls": dict(zip(KINDS, calls, strict=True)),
        "prepared": dict(zip(KINDS, ground.counts if prepared else (0, 0, 0), strict=True)),
        "preparation_seconds": ground.seconds if prepared else 0.0,
        "pass_episodes": ground.pass_episodes,
        "run_episodes": max(1, options.training.epochs) * ground.pass_episodes,
    }


def compare_flows(
    options: ReformulationOptions,
    seconds: float,
    device: str,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """All flows in this process, in turn.

    Args:
        options: Settings.
        seconds: Time of each flow, over all turns.
        device: Name of the device of networks and updates, such as "/GPU:0".
        say: Gets the lines of the progress display.

    Returns:
        What `gain` returns.
    """
    import tensorflow as tf

    with tf.device(device):
        say("pre-computation and parallel preparation")
        ground, flows, compiling = prepare(options), {}, {}
        for name in (COMPILED, SEQUENTIAL, ONE_QUERY):
            say(f"{name}: compiling")
            began = time.perf_counter()
            flows[name] = make_flow(name, ground, device)
            flows[name].ready()
            compiling[name] = time.perf_counter() - began
        results: dict[str, list[Result]] = {name: [] for name in flows}
        for turn in range(TURNS):
            for name, flow in flows.items():
                say(f"{name}: turn {turn + 1} of {TURNS}, {seconds / TURNS:.0f} s")
                row = measure_turn(name, flow, ground, seconds / TURNS)
                results[name].append({**row, "compile_seconds": compiling[name]})
    return gain(results[COMPILED], results[SEQUENTIAL], results[ONE_QUERY])


def gain(
    compiled: Sequence[Result],
    sequential: Sequence[Result],
    one_query: Sequence[Result],
) -> Result:
    """The savings of the compiled flow, from the turns of all flows.

    Returns:
        Medians of episodes per second; the ratio to one query at a time with rank_bm25, without
        and with preparation, and to the fastest flow of one query at a time, which needs the same
        preparation; and for each of KINDS the calls per 1,000 episodes in a run of one pass over
        the training queries and in a run of as many as the settings say, with the share saved.
    """
    run = compiled[0]
    speeds = [
        sorted(r["episodes"] / r["wall_seconds"] for r in flow)
        for flow in (compiled, sequential, one_query)
    ]
    fast, best, slow = (statistics.median(speed) for speed in speeds)
    wall = (
        statistics.median(r["preparation_seconds"] for r in compiled) + run["run_episodes"] / fast
    )
    calls = {}
    for kind in KINDS:
        old = sum(r["calls"][kind] for r in one_query) / sum(r["episodes"] for r in one_query)
        new = sum(r["calls"][kind] for r in compiled) / sum(r["episodes"] for r in compiled)
        row: dict[str, float] = {"one_query": 1000 * old}
        for name, episodes in (("run", run["run_episodes"]), ("one_pass", run["pass_episodes"])):
            all_calls = new + run["prepared"][kind] / episodes
            row |= {f"compiled_{name}": 1000 * all_calls, f"saved_{name}": 1 - all_calls / old}
        calls[kind] = row
    common = ("collection", "documents", "queries", "pass_episodes", "run_episodes")
    return {
        **{name: run[name] for name in common},
        "turns": len(compiled),
        "compiled_episodes_per_second": {"median": fast, "all": speeds[0]},
        "sequential_episodes_per_second": {"median": best, "all": speeds[1]},
        "one_query_episodes_per_second": {"median": slow, "all": speeds[2]},
        "ratio": fast / slow,
        "ratio_with_preparation": run["run_episodes"] / wall / slow,
        "ratio_to_sequential": fast / best,
        "preparation_seconds": statistics.median(r["preparation_seconds"] for r in compiled),
        "compile_seconds": statistics.median(r["compile_seconds"] for r in compiled),
        "calls": calls,
    }


def gain_lines(gained: Result) -> Iterator[str]:
    """The result of `gain` for a reader."""
    yield (
        f"{gained['collection']}: {gained['documents']:,} documents, {gained['queries']:,} "
        f"training queries; median of {gained['turns']} turns each, in turn (slowest, fastest)"
    )
    for name, title in TITLES.items():
        speed = gained[f"{name.replace('-', '_')}_episodes_per_second"]
        low, high = min(speed["all"]), max(speed["all"])
        yield f"  {title:<24} {speed['median']:>10,.1f} episodes/s ({low:,.1f}, {high:,.1f})"
    yield (
        f"  {gained['ratio']:,.0f}x one query at a time with rank_bm25, updates included; left "
        f"out: compiling ({gained['compile_seconds']:.1f} s) and preparing "
        f"({gained['preparation_seconds']:.1f} s) the compiled flow, both once"
    )
    episodes = gained["run_episodes"]
    yield (
        f"  {gained['ratio_with_preparation']:,.0f}x with its preparation, over a run of "
        f"{episodes:,} episodes"
    )
    yield (
        f"  {gained['ratio_to_sequential']:,.1f}x the fastest flow of one query at a time, which "
        "needs the same preparation, updates included"
    )
    yield (
        "Calls per 1,000 episodes, what is made before training spread over one pass of "
        f"{gained['pass_episodes']:,} episodes, or over a run of {episodes:,}:"
    )
    yield f"  {'':<18} {'one query':>12} {'one pass':>12} {'saved':>7} {'run':>12} {'saved':>7}"
    for kind, row in gained["calls"].items():
        yield (
            f"  {kind:<18} {row['one_query']:>12,.0f} {row['compiled_one_pass']:>12,.0f} "
            f"{row['saved_one_pass']:>7.1%} {row['compiled_run']:>12,.0f} {row['saved_run']:>7.1%}"
        )
    yield (
        "  Embedding call: a text given to the encoder. Search call: the whole collection scored "
        "for a query. Term scored: for a single term, the columns of candidates included. Rewards "
        "on the device are no searches: they add columns of pools."
    )


# --- the table of `kytolly benchmark` ------------------------------------------------------


def reformulation(options: Options, watch: Watch) -> Report:
    """All flows in processes of their own."""
    given = ("--collection", options.collection or "builtin")
    given += ("--seconds", "1" if options.quick else str(SECONDS))
    needs = ("rank_bm25", "snowballstemmer")
    contenders = [
        Contender(title, "kytolly.search.benchmark.reformulation", ("--flow", name, *given), needs)
        for name, title in reversed(TITLES.items())
    ]
    title = "Training query reformulation, the same network, queries and rewards"
    report = comparison(title, "episodes", contenders, options, watch)
    if any("missing" in row for row in report.data["rows"]):
        return report
    gained = gain(*(row["runs"] for row in report.data["rows"]))
    notes = [*report.notes, *gain_lines(gained)]
    return report._replace(notes=notes, data={**report.data, "gain": gained})


@dataclasses.dataclass(frozen=True)
class FlowOptions:
    """A flow, and what it trains on."""

    flow: Literal["compiled", "sequential", "one-query"] = setting("compiled", "which flow")
    collection: str = setting("builtin", "folder in the BEIR layout, or builtin")
    seconds: float = setting(SECONDS, "how long to train at least")


def measure(options: FlowOptions) -> Result:
    """Measure one flow in this process."""
    configure_without_cache()
    ground = prepare(ReformulationOptions(collection=options.collection))
    began = time.perf_counter()
    flow = make_flow(options.flow, ground, "/CPU:0")
    flow.ready()
    compiling = time.perf_counter() - began
    row = measure_turn(options.flow, flow, ground, options.seconds)
    return {**row, "compile_seconds": compiling}


if __name__ == "__main__":
    sys.exit(run_program(Program(measure, (FlowOptions,)), __doc__))
