"""Fine-tuning a query rewriter by PPO: the reward is what its terms gain in BM25."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Callback, TrainState
from kytolly.record.checkpoint import BEST, save_network
from kytolly.record.network_file import load_network
from kytolly.record.run_folder import RunFolder
from kytolly.search.config.rewriting_ppo import RewritingPPOConfig
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import warn_of_shared_queries
from kytolly.search.index.corpus import available_splits, load_collection
from kytolly.search.index.metrics import metric_parts, paired_bootstrap
from kytolly.search.model.token_actor_critic import TokenActorCritic
from kytolly.search.text.rewriter import Rewriter, some_rows
from kytolly.search.text.rewriting_env import RewardRules, RewritingEnv, allowed_tokens
from kytolly.search.text.rewriting_pairs import JudgedQuery, judged_queries, share_of_best
from kytolly.search.text.rewriting_pools import (
    SearchedQuery,
    make_pools,
    make_postings,
    metric_values,
    searched_queries,
)
from kytolly.search.text.rewriting_words import source_tokens
from kytolly.search.text.vocabulary import END, SPECIAL
from kytolly.trainer import Callbacks, Trainer

SPLITS = ("train", "dev", "test")
FREQUENT, KNOWN = 0.5, 0.95  # so many of the most frequent terms must be in the vocabulary
CALIBRATED = 64  # queries whose mean probability of ending is set before training
NEVER = -1e9


class FineTuning:
    """A rewriter, a collection, and what both give PPO.

    Args:
        cfg: What a term brings, and how to learn.
        source: A collection, as `load_collection` takes it, with judgments of train and dev.

    Raises:
        ValueError: The run is no rewriter's, or does not fit the collection or the settings.
    """

    def __init__(self, cfg: RewritingPPOConfig, source: str | Path):
        metric_parts(cfg.metric)
        self.cfg, self.rewriter = cfg, terms_rewriter(cfg.fine_tune)
        known = available_splits(source)
        splits = [split for split in SPLITS if split in known or split != "test"]
        self.collection = load_collection(source, splits)
        warn_of_shared_queries(self.collection)
        self.index = BM25Index(self.collection.texts)
        check_vocabulary(self.rewriter, self.index, self.collection.name, str(cfg.fine_tune))
        self.queries = {split: self.split_queries(split) for split in splits}
        settings, texts = self.rewriter.settings, [q.text for q in self.queries["train"]]
        self.length = int(settings["max_target_length"])
        texts += [query.text for query in self.queries["dev"]]
        longest = int(settings["max_source_length"])
        encoded = source_tokens(self.rewriter.vocabulary, texts, self.index.tokenizer, longest)
        width = max(1, int(encoded.lengths.max()))
        self.sources = encoded.matrix(np.arange(len(texts)), width)

    def split_queries(self, split: str) -> list[SearchedQuery]:
        """The queries of a split: all of train, else at most `EVALUATED`."""
        queries = searched_queries(self.collection, split)
        if split == "train":
            return queries
        return [queries[row] for row in some_rows(len(queries), 0)]

    def environment(self, split: str) -> RewritingEnv:
        """The queries of train, drawn, or of dev, in order."""
        cfg, queries, count = self.cfg, self.queries[split], len(self.queries["train"])
        vocabulary = self.rewriter.vocabulary
        words = [vocabulary.decode([token]) for token in range(vocabulary.size)]
        written = self.written_terms(self.rewriter, split)
        return RewritingEnv(
            self.collection.name,
            self.sources[:count] if split == "train" else self.sources[count:],
            make_pools(self.index, queries, written, cfg.term_weight, cfg.pool_documents),
            make_postings(self.index, words),
            self.length,
            RewardRules(cfg.metric, cfg.term_weight, cfg.term_cost),
            in_order=split != "train",
        )

    def network(self) -> TokenActorCritic:
        """The rewriter's network with a value; it may end from the beginning."""
        arguments = {"temperature": self.cfg.temperature} | self.rewriter.network.get_config()
        network: Any = TokenActorCritic.from_config(arguments)
        network.build()
        network.take(self.rewriter.network)
        if not self.rewriter.settings.get("may_end"):
            count = min(CALIBRATED, len(self.queries["train"]))
            texts = [query.text for query in self.queries["train"][:count]]
            set_end(network, self.sources[:count], self.tokens(texts), self.cfg.end_probability)
        return network

    def tokens(self, texts: Sequence[str]) -> np.ndarray:
        """[Q, T] int32 tokens that the rewriter writes before training."""
        return self.rewriter.rows(texts)[..., 0].astype(np.int32)

    def written_terms(self, rewriter: Rewriter, split: str) -> list[list[str]]:
        """The terms that a rewriter writes for the queries of a split."""
        written = rewriter.terms_of([query.text for query in self.queries[split]])
        return [[one.term for one in terms] for terms in written]

    def values(self, split: str, written: Sequence[Sequence[str]]) -> np.ndarray:
        """[Q] the metric of BM25 with written terms, over all documents."""
        cfg, queries = self.cfg, self.queries[split]
        return metric_values(self.index, queries, written, cfg.term_weight, cfg.metric)

    def comparison(self, before: Rewriter, after: Rewriter, split: str) -> dict[str, Any]:
        """The terms of two rewriters, their gains, and the difference of these."""
        without = self.values(split, [[] for _ in self.queries[split]])
        result: dict[str, Any] = {"bm25": float(without.mean())}
        values, judged = {}, judged_queries(self.collection, self.index, split, self.length)
        judged = [judged[row] for row in some_rows(len(judged), 0)]
        for name, rewriter in (("before", before), ("after", after)):
            written = self.written_terms(rewriter, split)
            values[name] = self.values(split, written)
            gain, *interval = paired_bootstrap(values[name].tolist(), without.tolist())
            terms = float(np.mean([len(row) for row in written]))
            result[name] = {
                "gain": gain,
                "interval": interval,
                "reward": gain - self.cfg.term_cost * terms,
                "terms": terms,
                "term_share": term_share(rewriter, judged),
            }
        difference, *interval = paired_bootstrap(
            values["after"].tolist(), values["before"].tolist()
        )
        return {**result, "difference": difference, "interval": interval}


def term_share(rewriter: Rewriter, queries: Sequence[JudgedQuery]) -> float:
    """The share of the best terms of queries that a rewriter writes."""
    written = rewriter.terms_of([query.text for query in queries])
    return share_of_best(queries, [[one.term for one in terms] for terms in written])


class SaveRewriter(Callback):
    """Makes a run usable from its first evaluation on.

    Args:
        rewriter: What has the vocabulary and the settings.
    """

    def __init__(self, rewriter: Rewriter):
        self.rewriter = rewriter

    def on_train_begin(self, state: TrainState) -> None:
        """Write what is beside the network."""
        self.rewriter.save(state.run_dir)


def fine_tune_rewriter(
    cfg: RewritingPPOConfig,
    source: str | Path,
    log_dir: str | Path | None = None,
    *,
    cb: Callbacks = (),
    resume: bool = False,
    progress: bool = True,
) -> tuple[dict[str, Any], list[str]]:
    """Improve a rewriter by PPO, and measure it on the test split, if there is one.

    The best weights by dev are kept, or the rewriter as it was, where their reward is no higher.

    Args:
        cfg: The rewriter's run, what a term brings, and how to learn.
        source: The collection that the rewriter was trained on, with judgments of train and dev.
        log_dir: The run's folder; None: a new one.
        cb: Callbacks, ours and Keras's.
        resume: Continue the run in `log_dir`.
        progress: Show a progress bar on standard error.

    Returns:
        What `result.json` holds, and the result as lines of text.

    Raises:
        ValueError: The run, the collection or a setting does not fit.
    """
    task = FineTuning(cfg, source)
    before, episodes = task.rewriter, len(task.queries["dev"])
    cfg = dataclasses.replace(cfg, evaluation_episodes=episodes, final_evaluation_episodes=episodes)
    settings = {**before.settings, "may_end": True}
    network = task.network()
    result = Trainer(log_dir, progress).train(
        cfg,
        task.environment("train"),
        [SaveRewriter(Rewriter(network, before.vocabulary, settings)), *cb],
        model=network,
        evaluation_env=task.environment("dev"),
        resume=resume,
    )
    result.require_written()
    folder = Path(result.run_dir)
    after = Rewriter(load_network(folder / BEST), before.vocabulary, settings)
    gains = {"dev": task.comparison(before, after, "dev")}
    improved = gains["dev"]["after"]["reward"] > gains["dev"]["before"]["reward"]
    if not improved:
        after = before
        save_network(before.network, folder)
    after.save(folder)
    gains |= {s: task.comparison(before, after, s) for s in ("train", "test") if s in task.queries}
    summary = {
        **result.summary,
        "queries": {split: len(queries) for split, queries in task.queries.items()},
        "metric": cfg.metric,
        "kept": "fine-tuned" if improved else "supervised",
        "gains": gains,
    }
    RunFolder(folder).write_result(summary)
    return summary, lines(summary)


def lines(summary: Mapping[str, Any]) -> list[str]:
    """The result for a reader."""
    text = [f"Gain in {summary['metric']} by the written terms, with its 95% interval:"]
    for split, part in summary["gains"].items():
        for when in ("before", "after"):
            one = part[when]
            text.append(
                f"  {split:<6}{when + ' PPO':<11} {interval_text(one['gain'], one['interval'])}, "
                f"{one['terms']:.1f} terms, share of the best {one['term_share']:.3f}"
            )
        difference = interval_text(part["difference"], part["interval"])
        text.append(f"  {split:<6}{'difference':<11} {difference}; BM25 alone {part['bm25']:.4f}")
    if summary["kept"] == "supervised":
        text.append(
            "PPO earned no more on dev than the rewriter that it began with, and that one is kept."
        )
    return text


def interval_text(mean: float, interval: Sequence[float]) -> str:
    """A mean and its interval."""
    return f"{mean:+.4f} [{interval[0]:+.4f}, {interval[1]:+.4f}]"


def terms_rewriter(run: str | None) -> Rewriter:
    """The rewriter of a run, which writes terms."""
    if run is None:
        raise ValueError("fine_tune is None, expected the run of a rewriter. Give its folder.")
    rewriter = Rewriter.load(run)
    if not rewriter.writes_terms:
        raise ValueError(
            f"the rewriter of {run} writes {rewriter.settings['target']}, expected one that "
            "writes terms: train one with `--target terms`."
        )
    return rewriter


def check_vocabulary(rewriter: Rewriter, index: BM25Index, name: str, run: str) -> None:
    """Refuse a collection whose frequent terms the vocabulary of a rewriter lacks."""
    size = rewriter.vocabulary.size - SPECIAL
    counts = np.argsort(-index.document_frequency, kind="stable")[: max(1, int(FREQUENT * size))]
    terms = [index.terms[place] for place in counts]
    known = sum(int(token) >= SPECIAL for row in rewriter.vocabulary.encode(terms) for token in row)
    if known < KNOWN * len(terms):
        raise ValueError(
            f"the vocabulary of {run} has {known:,} of the {len(terms):,} most frequent terms of "
            f"{name}, expected nearly all. Give the collection that the rewriter was trained on."
        )


def set_end(
    network: TokenActorCritic, source: np.ndarray, tokens: np.ndarray, probability: float
) -> None:
    """Give the end the same logit everywhere, one that makes its mean probability as asked.

    Supervised training never shows the end: its logit says nothing.

    Args:
        network: Of a rewriter.
        source: [Q, S] queries.
        tokens: [Q, T] what is written for them; the mean is over its beginnings.
        probability: Of the end.
    """
    others = []
    for count in range(tokens.shape[1]):
        written = np.where(np.arange(tokens.shape[1]) < count, tokens, 0)
        obs = {"source": tf.constant(source), "written": tf.constant(written)}
        logits, _ = network(obs)
        allowed = allowed_tokens(obs["source"], obs["written"], network.vocabulary).numpy()
        allowed[:, END] = False
        logits = tf.where(allowed, tf.cast(logits, tf.float32), NEVER)
        others.append(tf.reduce_logsumexp(logits, axis=-1).numpy())
    rest, low, high = np.concatenate(others), -1e3, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        mean = np.mean(1.0 / (1.0 + np.exp(np.clip(rest - middle, -80, 80))))
        low, high = (middle, high) if mean < probability else (low, middle)
    table, bias = network.embedding.get_weights()[0], np.array(network.bias)
    table[END], bias[END] = 0.0, low * network.temperature
    network.embedding.set_weights([table])
    network.bias.assign(bias)
