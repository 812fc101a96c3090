"""Query reformulation: from a collection to a trained agent, and on to better queries."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kytolly.machine import configure as gpu_optimize

gpu_optimize.require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import numpy as np
import tensorflow as tf

from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import ACTION_MASK
from kytolly.model.candidate_scorer import CandidateScorer
from kytolly.policy.distributions import Categorical
from kytolly.policy.ppo import greedy_action, without_mask
from kytolly.reformulation.candidates import Skipped, mine, with_judgements
from kytolly.reformulation.device_env import QueryEnvironment
from kytolly.reformulation.gain_policy import GainPolicy
from kytolly.reformulation.gains import GainExamples, gain_examples
from kytolly.reformulation.host_env import NO_TERM, HostQueries
from kytolly.reformulation.mining import MiningSettings
from kytolly.reformulation.options import ReformulationOptions, RetrievalOptions
from kytolly.reformulation.table import Query, QueryTable, Settings, make_table
from kytolly.retrieval.bm25 import EPSILON, BM25Index
from kytolly.retrieval.corpus import Collection, load_collection
from kytolly.retrieval.embedding import EmbeddingCache, Encoder, make_encoder
from kytolly.retrieval.tokens import EnglishTokenizer

STOP = NO_TERM  # in place of a candidate's number
WARM_TEMPERATURE = 0.05  # gain, in units of the metric, that makes an action e times as likely
WARM_PATIENCE = 12  # passes without a better gain on dev queries
WARM_EPISODES = 4  # episodes of each training query whose states are learnt from

GROUPS = {
    "reading": "pre-computation",
    "indexing": "pre-computation",
    "embedding": "pre-computation",
    "mining": "parallel preparation",
    "tables": "parallel preparation",
}


class Phases:
    """Seconds spent in each named part of a run.

    A part within a part counts for itself alone, so that all of them add up to the whole.

    Args:
        say: Gets a line when a part begins that is within no other.
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None):
        self.say = say
        self.seconds: dict[str, float] = {}
        self._within: list[float] = []  # seconds of the parts inside each open one

    @contextlib.contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Add the time of a block to `name`."""
        if not self._within:
            self.say(f"{GROUPS.get(name, 'training')}: {name}")
        self._within.append(0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            own = spent - self._within.pop()
            self.seconds[name] = self.seconds.get(name, 0.0) + own
            if self._within:
                self._within[-1] += spent


class TimedEncoder:
    """An encoder whose time counts as the phase "embedding", wherever it is called.

    Args:
        encoder: Does the work.
        phases: Gets the time.
    """

    def __init__(self, encoder: Encoder, phases: Phases):
        self.encoder, self.phases = encoder, phases
        self.identity, self.dimension = encoder.identity, encoder.dimension

    def encode(self, texts: list[str]) -> np.ndarray:
        """[n, dimension] of texts."""
        with self.phases.measured("embedding"):
            return self.encoder.encode(texts)


@dataclasses.dataclass(frozen=True)
class SearchSide:
    """Everything about a collection that is known before anything is learnt.

    Attributes:
        options: Settings.
        collection: Documents, queries and the judgements of the splits that were asked for.
        index: The collection's documents.
        cache: Embeddings of terms and queries.
        phases: Where the time went.
        skipped: Split -> its queries that cannot be reformulated, once they were asked for.
    """

    options: ReformulationOptions
    collection: Collection
    index: BM25Index
    cache: EmbeddingCache
    phases: Phases
    skipped: dict[str, list[Skipped]] = dataclasses.field(default_factory=dict)

    @classmethod
    def prepared(
        cls,
        options: ReformulationOptions,
        splits: Sequence[str],
        phases: Phases | None = None,
        saved_index: Path | None = None,
    ) -> SearchSide:
        """Read and index a collection; only the judgements of `splits` are read.

        Args:
            options: Settings.
            splits: Whose judgements are read.
            phases: Gets the time.
            saved_index: A file that `BM25Index.save` wrote. It is taken where it is an index of
                these documents with these settings; else they are indexed anew.
        """
        phases, wanted = phases or Phases(), options.retrieval
        with phases.measured("reading"):
            collection = load_collection(options.collection, splits)
        with phases.measured("indexing"):
            index = found_index(saved_index, collection, wanted)
            if index is None:
                index = BM25Index(collection.texts, EnglishTokenizer(), wanted.k1, wanted.b)
        with phases.measured("embedding"):
            encoder = make_encoder(wanted.encoder, wanted.dimension)
            cache = EmbeddingCache(TimedEncoder(encoder, phases), wanted.cache_entries)
        return cls(options, collection, index, cache, phases)

    @property
    def episode(self) -> Settings:
        """What an episode may do."""
        wanted = self.options.retrieval
        return Settings(wanted.metric, wanted.max_terms, wanted.candidates, wanted.weight)

    @property
    def mining(self) -> MiningSettings:
        """How candidates are mined."""
        wanted = self.options.retrieval
        return MiningSettings(wanted.feedback_documents, wanted.candidates, weight=wanted.weight)

    def queries(self, split: str) -> list[Query]:
        """A split's queries with their candidates and judgements."""
        skipped = self.skipped[split] = []
        mined = self.mined(self.collection, self.collection.split(split), skipped)
        return with_judgements(mined, self.collection, split)

    def mined(
        self, collection: Collection, numbers: Sequence[int], skipped: list[Skipped]
    ) -> list[Query]:
        """Queries of a collection with the same documents; those left out go to `skipped`."""
        workers = self.options.retrieval.workers
        with self.phases.measured("mining"):
            return mine(collection, numbers, self.index, self.cache, self.mining, workers, skipped)

    def table(self, queries: Sequence[Query]) -> QueryTable:
        """The queries as arrays."""
        with self.phases.measured("tables"):
            return make_table(queries, self.index, self.episode)


def found_index(
    path: Path | None, collection: Collection, wanted: RetrievalOptions
) -> BM25Index | None:
    """The index in a file; None where there is none, or one of other documents or settings."""
    if path is None:
        return None
    parameters = (wanted.k1, wanted.b, EPSILON)
    try:
        return BM25Index.load(path, collection.texts, EnglishTokenizer(), parameters)
    except ValueError:
        return None


def make_scorer(
    env: QueryEnvironment | HostQueries, options: ReformulationOptions
) -> CandidateScorer:
    """A network for the queries' features, its normalisation taken from them."""
    agent = options.rl_agent
    network = CandidateScorer(agent.hidden_units, dropout=agent.dropout)
    world: Any = env
    seen = world.observe(world.begin(tf.range(env.queries)))
    network(without_mask(seen))
    present = seen[ACTION_MASK][:, :-1]
    network.adapt(tf.boolean_mask(seen["candidates"], present), seen["state"])
    return network


class GreedyPlayer(tf.Module):
    """Plays every query of an environment once, always with the likeliest action.

    Args:
        network: Keras model ({candidates, state}) -> (logits [E, N + 1], value [E]).
        env: The queries.
        xla: Compile with XLA; takes seconds, so only where it is played often.
    """

    def __init__(self, network: keras.Model, env: QueryEnvironment | HostQueries, xla: bool = True):
        super().__init__(name="greedy_player")
        self.network, self.env = network, env
        self.program = tf.function(self._play, jit_compile=xla or None, autograph=False)
        self.scores = tf.function(self._scores, autograph=False) if xla else self._scores

    def play(self) -> tuple[np.ndarray, np.ndarray]:
        """[Q, max_terms] candidates added to every query, STOP after the last.

        With them [Q] the gains of the metric, which are 0 where nothing is judged.
        """
        if isinstance(self.env, HostQueries):
            return self.env.play(lambda obs: self.scores(obs).numpy())
        actions, gains = self.program()
        return actions.numpy(), gains.numpy()

    def _scores(self, obs: dict[str, Any]) -> tf.Tensor:
        return self.network({name: tf.convert_to_tensor(part) for name, part in obs.items()})[0]

    def _play(self) -> tuple[tf.Tensor, tf.Tensor]:
        env: Any = self.env
        copies, distribution = env.queries, Categorical(env.candidates + 1)
        state = env.begin(tf.range(copies))
        first, over, actions = state.value, tf.zeros([copies], tf.bool), []
        for _ in range(env.settings.max_terms):
            obs = env.observe(state)
            action = greedy_action(self.network, distribution, obs)
            action = tf.where(over, env.candidates, action)
            state, _, ends = env.step(state, action, tf.zeros([copies, 0]))
            actions.append(tf.where(action < env.candidates, action, STOP))
            over = over | ends
        return tf.stack(actions, axis=-1), state.value - first


def greedy_actions(
    network: keras.Model, env: QueryEnvironment | HostQueries
) -> tuple[np.ndarray, np.ndarray]:
    """What `GreedyPlayer.play` returns, for a network that is played once."""
    return GreedyPlayer(network, env, xla=False).play()


def all_gain_examples(
    env: QueryEnvironment | HostQueries, options: ReformulationOptions
) -> GainExamples:
    """One-step gains along a few episodes of each training query."""
    return gain_examples(env, options.retrieval.max_terms, options.seed, WARM_EPISODES)


def warm_started(
    network: CandidateScorer,
    data: GainExamples,
    dev_env: QueryEnvironment | HostQueries,
    options: ReformulationOptions,
    watch: Callable[[dict[str, float]], None] = lambda row: None,
) -> list[dict[str, float]]:
    """Fit a network to one-step gains; it keeps the weights that gain most on dev queries.

    Args:
        network: Learns.
        data: One-step gains of training queries.
        dev_env: Queries that decide when to stop.
        options: Settings.
        watch: Gets each row as soon as it is known.

    Returns:
        A row for each pass: training loss, and the mean gain on dev queries.
    """
    training, agent = options.training, options.rl_agent
    optimizer = keras.optimizers.AdamW(training.warm_start_learning_rate, weight_decay=1e-2)
    policy = GainPolicy(network, optimizer, WARM_TEMPERATURE, agent.value_coef, agent.max_grad_norm)
    player = GreedyPlayer(network, dev_env)
    rng, rows = np.random.default_rng(options.seed), []
    size = min(256, len(data.gain))
    best, best_weights, since = -np.inf, network.get_weights(), 0
    for epoch in range(training.warm_start_epochs):
        order, figures = rng.permutation(len(data.gain)), []
        for first in range(0, len(order) - size + 1, size):
            part = order[first : first + size]
            obs = {"candidates": data.candidates[part], "state": data.state[part]}
            figures.append(policy.fit_step(obs, data.allowed[part], data.gain[part]).numpy())
        gain = float(player.play()[1].mean())
        loss = float(np.mean(figures, axis=0)[0])
        rows.append({"epoch": epoch + 1, "loss": loss, "dev_gain": gain})
        watch(rows[-1])
        since += 1
        if gain > best:
            best, best_weights, since = gain, network.get_weights(), 0
        if since >= WARM_PATIENCE:
            break
    network.set_weights(best_weights)
    return rows


def ppo_config(options: ReformulationOptions, queries: int, dev_queries: int) -> PPOConfig:
    """PPO's settings for so many training queries; an epoch is as many episodes of full length."""
    training, agent = options.training, options.rl_agent
    steps = options.retrieval.max_terms
    copies = min(training.collect_batch_size, max(1, queries))
    rollout = min(
        -(-training.episodes_per_update * steps // copies), training.buffer_size // copies
    )
    rollout = max(1, rollout)
    rows = copies * rollout
    minibatches = max(1, rows // training.batch_size)
    while rows % minibatches:
        minibatches -= 1
    return PPOConfig(
        total_env_steps=max(1, training.epochs * queries * steps),
        num_envs=copies,
        rollout_steps=rollout,
        epochs=training.update_epochs,
        num_minibatches=minibatches,
        learning_rate=training.learning_rate,
        learning_rate_final=0.0,
        gamma=agent.gamma,
        gae_lambda=agent.gae_lambda,
        clip_range=agent.clip_range,
        entropy_coef=agent.entropy_coef,
        value_coef=agent.value_coef,
        max_grad_norm=agent.max_grad_norm,
        target_kl=agent.target_kl,
        seed=options.seed,
        evaluation_episodes=dev_queries,
        final_evaluation_episodes=dev_queries,
        early_stop_patience=training.patience,
        log_interval_env_steps=rows,
        evaluation_interval_env_steps=rows,
    )
