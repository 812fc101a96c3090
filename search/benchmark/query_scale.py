"""Query reformulation by the size of the collection: `reformulation-scale`.

The collections are made by rule, with the measures of WikiQA's sentences: 25 words a document on
average, six and a half a query, words as frequent as Zipf's law has them and a vocabulary that
grows as `29 * words ** 0.54`. Four in five of a document's words that are not among the most
frequent are those of its topic. A query takes half of its words from the one document that is
relevant and half from that document's topic, so that its expansion can help. The number of queries
is the same for every size. What one query takes once everything is loaded is measured by
`search.benchmark.query_latency`, in a process of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kytolly.benchmarks.loops import configure_without_cache, peak_memory_mib
from kytolly.benchmarks.program import Program, Result, Span, run_program
from kytolly.benchmarks.suite import Options, Report, Watch, one_core, run_module
from kytolly.config.fields import setting
from kytolly.experiment.plots import check_picture
from kytolly.search.index.tokens import STOP_WORDS
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions

DOCUMENTS = (1_000, 10_000, 50_000, 200_000)
QUERIES = {"train": 500, "dev": 100}
LATENCIES, TRIAL_LATENCIES = 200, 5  # queries that are timed one by one
THIS = "kytolly.search.benchmark.query_scale"
LATENCY = "kytolly.search.benchmark.query_latency"
TRIAL = ((200, 400), {"train": 20, "dev": 5})  # a trial run's documents and queries
COMMON = 300  # most frequent words, which belong to no topic
TOPIC_WORDS = 60
TOPIC_DOCUMENTS = 40  # that share a topic, on average
STAGES = ("indexing", "mining", "tables")
SYLLABLES = [a + b for a in "bdfgklmnprtvz" for b in "aiou"]


@dataclasses.dataclass(frozen=True)
class ScaleOptions:
    """The size of a collection, and how long it is learned from."""

    documents: int = setting(DOCUMENTS[0], "documents of the collection")
    train: int = setting(QUERIES["train"], "training queries")
    dev: int = setting(QUERIES["dev"], "dev queries")
    metric: str = setting("ndcg@10", "whose gain is the reward")
    rollouts: int = setting(2, "timed rollouts of about 2,048 episodes")
    collection: str | None = setting(None, "measure this folder instead of one made by rule")


@contextlib.contextmanager
def collection_folder(
    given: str | None, documents: int, queries: Mapping[str, int]
) -> Iterator[str]:
    """The given folder, or one with a collection made by rule that is gone after the block."""
    with tempfile.TemporaryDirectory() as folder:
        if given is None:
            write_collection(Path(folder) / "collection", documents, queries)
        yield given or str(Path(folder) / "collection")


def measure_scale(scale: ScaleOptions) -> Result:
    """Measure one size in this process."""
    configure_without_cache()
    queries = {"train": scale.train, "dev": scale.dev}
    with collection_folder(scale.collection, scale.documents, queries) as folder:
        # One process, so that its own clock and memory are those of the work.
        retrieval = RetrievalOptions(metric=scale.metric, encoder="hash", workers=1)
        options = ReformulationOptions(collection=folder, retrieval=retrieval)
        return measure(options, scale.rollouts)


def measure(options: ReformulationOptions, rollouts: int) -> Result:
    """Prepare, train for some rollouts, and say what it took."""
    from kytolly.agent.make_agent import make_agent
    from kytolly.loop.env_runner import make_env_runner
    from kytolly.search.reformulate.device_env import DeviceQueries
    from kytolly.search.reformulate.network import copied_scorer, make_scorer
    from kytolly.search.reformulate.ppo_training import ppo_config
    from kytolly.search.reformulate.search import SearchContext
    from kytolly.search.reformulate.table import make_table

    spans = {name: Span() for name in (*STAGES, "compiling", "training")}
    with spans["indexing"]:
        context = SearchContext.load(options, ("train", "dev"))
    with spans["mining"]:
        queries = {split: context.queries(split) for split in ("train", "dev")}
    with spans["tables"]:
        tables = [
            make_table(part, context.index, context.documents, context.rules)
            for part in queries.values()
        ]
    with spans["compiling"]:
        train = DeviceQueries(tables[0], context.rules)
        cfg = ppo_config(options, train.num_queries, len(queries["dev"]))
        cfg = dataclasses.replace(cfg, target_kl=None)  # every update is made
        runner = make_env_runner(cfg, train)
        network = copied_scorer(make_scorer(tables[0], options.rl_agent), 0.0)
        loop = runner.loop(make_agent(cfg, runner.spec, network), "/CPU:0")
        steps = cfg.num_envs * cfg.rollout_steps
        loop.run(0)
        loop.run(steps)
    with spans["training"]:
        episodes = sum(int(loop.run(steps).episodes) for _ in range(rollouts))
    loop.close()
    return {
        "documents": context.index.documents,
        "terms": len(context.index.terms),
        "queries": {split: len(part) for split, part in queries.items()},
        "table_mib": sum(table.bytes for table in tables) / 2**20,
        "episodes": episodes,
        "env_steps": rollouts * steps,
        "seconds": {name: span.wall_seconds for name, span in spans.items()},
        "cpu_seconds": {name: span.cpu_seconds for name, span in spans.items()},
        "peak_memory_mib": peak_memory_mib(),
    }


# --- collections made by rule ----------------------------------------------------------------


def write_collection(
    folder: Path, documents: int, queries: Mapping[str, int], seed: int = 0
) -> None:
    """Write a collection in the BEIR layout; the splits' queries are apart."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(rng.lognormal(3.05, 0.57, documents).astype(int), 3)
    words = vocabulary(int(29 * lengths.sum() ** 0.54))
    topics = max(documents // TOPIC_DOCUMENTS, 1)
    topic_words = rng.integers(COMMON, len(words), (topics, TOPIC_WORDS))
    topic_of = rng.integers(topics, size=documents)
    which = np.repeat(topic_of, lengths)
    tokens = zipf(rng, len(words), len(which))
    of_topic = (tokens >= COMMON) & (rng.random(len(which)) < 0.8)
    tokens[of_topic] = topic_words[which, zipf(rng, TOPIC_WORDS, len(which))][of_topic]
    texts = [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]
    folder.mkdir(parents=True)
    (folder / "qrels").mkdir()
    with (folder / "corpus.jsonl").open("w") as file:
        for number, text in enumerate(texts):
            text = " ".join(words[word] for word in text)
            file.write(json.dumps({"_id": f"d{number}", "title": "", "text": text}) + "\n")
    with (folder / "queries.jsonl").open("w") as file:
        for split, count in queries.items():
            lines = ["query-id\tcorpus-id\tscore"]
            for number, doc in enumerate(rng.integers(documents, size=count)):
                size = max(int(rng.normal(6.5, 2.0)), 2)
                drawn = rng.choice(texts[doc], size // 2).tolist()
                drawn += topic_words[
                    topic_of[doc], zipf(rng, TOPIC_WORDS, size - size // 2)
                ].tolist()
                text = " ".join(words[word] for word in drawn)
                file.write(json.dumps({"_id": f"{split}{number}", "text": text}) + "\n")
                lines.append(f"{split}{number}\td{doc}\t1")
            (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def zipf(rng: np.random.Generator, kinds: int, count: int) -> np.ndarray:
    """[count] ranks from 0 below `kinds`, each as likely as 1 / (rank + 1)."""
    cumulated = np.cumsum(1.0 / np.arange(1, kinds + 1))
    return np.searchsorted(cumulated, rng.random(count) * cumulated[-1])


def vocabulary(size: int) -> list[str]:
    """Distinct words, stop words first: in English the most frequent words are stop words."""
    words = sorted(word for word in STOP_WORDS if word.isalpha())[:size]
    number = len(SYLLABLES) ** 2  # three syllables or more
    while len(words) < size:
        word, rest = "", number
        while rest:
            rest, place = divmod(rest, len(SYLLABLES))
            word += SYLLABLES[place]
        words.append(word)
        number += 1
    return words


# --- the table ---------------------------------------------------------------------------------


def reformulation_scale(options: Options, watch: Watch) -> Report:
    """Preparation, training and memory by the size of the collection, and the time of a query."""
    check_picture(options.figure, "--figure")
    sizes, queries = TRIAL if options.quick else (DOCUMENTS, QUERIES)
    timed = TRIAL_LATENCIES if options.quick else LATENCIES
    core, runs = one_core(), {size: [] for size in sizes}
    latencies: dict[int, list[Result]] = {size: [] for size in sizes}
    watch.begin(2 * options.repeats * len(sizes))
    for turn in range(options.repeats):
        for size in sizes:
            counts = [f"--{split}={count}" for split, count in queries.items()]
            with watch.turn(f"{size:,} documents, {turn + 1} of {options.repeats}"):
                arguments = ("--documents", str(size), *counts)
                runs[size].append(run_module(THIS, arguments, core))
            with watch.turn(f"{size:,} documents, one query, {turn + 1} of {options.repeats}"):
                arguments = ("--documents", str(size), "--queries", str(timed))
                latencies[size].append(run_module(LATENCY, arguments, core))
    data = [row_of(runs[size], latencies[size]) for size in sizes]
    where = "all cores free" if core is None else f"pinned to core {core}"
    notes = [
        f"Median of {options.repeats} turns, each size in a process of its own, {where}. CPU "
        f"seconds; {queries['train']} training and {queries['dev']} dev queries at every size, "
        "settings as they are by default, encoder hash. Preparation is reading, indexing, mining "
        "and tables; memory is the whole process's, TensorFlow and the compiler included.",
        f"One query: CPU milliseconds of Reformulator.reformulate with the package's network and "
        f"cosines, two rankings of 10 documents, queries never seen before; median of {timed}.",
        *(latency_line(part) for part in latencies.values()),
        *growth(data),
        *save_plot(data, options.figure),
    ]
    columns = ["documents", "terms", *STAGES, "prepared", "compile", "1,000 episodes",
               "table MiB", "peak MiB", "one query, ms"]  # fmt: skip
    title = "Query reformulation by the size of the collection, CPU seconds"
    return Report(title, columns, [cells(row) for row in data], notes, {"rows": data})


def row_of(runs: Sequence[Result], latencies: Sequence[Result]) -> Result:
    """Medians over the turns of one size."""
    first = runs[0]

    def median(name: str, clock: str = "cpu_seconds") -> float:
        return statistics.median(run[clock][name] for run in runs)

    episodes = [1_000 * run["cpu_seconds"]["training"] / run["episodes"] for run in runs]
    return {
        **{name: first[name] for name in ("documents", "terms", "table_mib")},
        **{name: median(name) for name in (*STAGES, "compiling")},
        "preparation": sum(median(name) for name in STAGES),
        "thousand_episodes": statistics.median(episodes),
        "peak_memory_mib": statistics.median(run["peak_memory_mib"] or 0 for run in runs),
        "query_ms": statistics.median(run["cpu_ms"] for run in latencies),
        "runs": list(runs),
        "latencies": list(latencies),
    }


def cells(row: Result) -> list[str]:
    """A row for the reader."""
    timed = (*STAGES, "preparation", "compiling", "thousand_episodes")
    return [
        f"{row['documents']:,}",
        f"{row['terms']:,}",
        *(f"{row[name]:.1f}" for name in timed),
        f"{row['table_mib']:,.0f}",
        f"{row['peak_memory_mib']:,.0f}",
        f"{row['query_ms']:.1f}",
    ]


def latency_line(runs: Sequence[Result]) -> str:
    """The seconds of each part of one query, from the turns of one size."""
    first = runs[0]
    cpu, wall, slow = (
        statistics.median(run[name] for run in runs) for name in ("cpu_ms", "wall_ms", "slow_ms")
    )
    parts = ", ".join(
        f"{name} {statistics.median(run['parts_ms'][name] for run in runs):.2f}"
        for name in first["parts_ms"]
    )
    return (
        f"One query over {first['documents']:,} documents of {first['words']:.0f} terms, encoder "
        f"{first['encoder']}: {cpu:.1f} ms of CPU, one in ten above {slow:.1f}, wall time "
        f"{wall:.1f} ms (medians of {first['queries']} new queries). Mean ms of its parts: {parts}."
    )


def growth(rows: Sequence[Result]) -> list[str]:
    """The growth of each number from one size to the next, beside the documents."""
    lines = []
    for before, after in itertools.pairwise(rows):
        documents = after["documents"] / before["documents"]
        factors = ", ".join(
            f"{name} x {after[key] / max(before[key], 1e-9):.1f}"
            for name, key in (
                ("preparation", "preparation"),
                ("training", "thousand_episodes"),
                ("memory", "peak_memory_mib"),
                ("one query", "query_ms"),
            )
        )
        lines.append(
            f"{before['documents']:,} to {after['documents']:,} documents (x {documents:.0f}): "
            f"{factors}."
        )
    return lines


def save_plot(rows: Sequence[Result], path: str | None) -> list[str]:
    """Save the picture where it was asked for; returns the line that says so."""
    if path is None:
        return []
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.4))
    seconds, memory = figure.subplots(1, 2)
    documents = [row["documents"] for row in rows]
    for name, key in (
        ("preparation", "preparation"),
        ("1,000 episodes of training", "thousand_episodes"),
    ):
        seconds.plot(documents, [row[key] for row in rows], marker="o", label=name)
    linear = rows[0]["preparation"] / documents[0]
    seconds.plot(documents, [linear * count for count in documents], ":", c="gray", label="linear")
    memory.plot(documents, [row["peak_memory_mib"] for row in rows], marker="o", label="process")
    memory.plot(documents, [row["table_mib"] for row in rows], marker="o", label="tables")
    for panel, unit in ((seconds, "CPU seconds"), (memory, "MiB")):
        panel.set(xscale="log", yscale="log", xlabel="documents", ylabel=unit)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(Path(path).expanduser(), dpi=150, bbox_inches="tight")
    return [f"Picture: {path}"]


PROGRAM = Program(measure_scale, (ScaleOptions,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
