"""What episodes have in common, whether they search in tables or in the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from kytolly.environment.spec import ACTION_MASK, Discrete, EnvSpec
from kytolly.reformulation.query import EpisodeRules

NO_TERM = -1  # stands for no candidate
STEP_FEATURES = 5  # features of the state that `observation` adds to the query's own


class GainExamples(NamedTuple):
    """`M` states and the reward of every action there.

    Attributes:
        candidates: [M, N, F].
        state: [M, G].
        allowed: [M, N + 1] bool.
        gain: [M, N + 1] reward of each action; 0 for STOP and for what is not allowed.
        query: [M] places of the queries.
        added: [M] terms added before.
    """

    candidates: np.ndarray
    state: np.ndarray
    allowed: np.ndarray
    gain: np.ndarray
    query: np.ndarray
    added: np.ndarray


class PlayedQueries(NamedTuple):
    """One greedy episode of each query.

    Attributes:
        actions: [Q, max_terms] candidates that were added, NO_TERM after the last.
        gains: [Q] changes of the metric; 0 where nothing is judged relevant.
    """

    actions: np.ndarray
    gains: np.ndarray


class Queries(Protocol):
    """Queries that episodes can be played with: `DeviceQueries` or `HostQueries`.

    Attributes:
        num_queries: Number of queries.
        candidates: Most candidates of a query, `N`.
        rules: What an episode may do.
        spec: Spec of the environment.
        table_bytes: Size of the tables on the device.
    """

    num_queries: int
    candidates: int
    rules: EpisodeRules
    spec: EnvSpec
    table_bytes: int

    def begin(self, query: Any) -> Any:
        """States of the given [E] queries, as they were typed."""
        ...

    def observe(self, state: Any) -> dict[str, Any]:
        """What the agent sees. Nothing in it comes from a judgment."""
        ...

    def greedy_player(self, network: keras.Model, xla: bool = True) -> Callable[[], PlayedQueries]:
        """A function that plays every query once, always with the likeliest action.

        Args:
            network: Keras model ({candidates, state}) -> (logits [E, N + 1], value [E]).
            xla: Compile with XLA. That takes seconds, so it pays if the function is called often.
        """
        ...

    def gain_examples(self, steps: int, seed: int = 0, passes: int = 1) -> GainExamples:
        """Examples along episodes of each query in which terms of higher gain are added sooner.

        Args:
            steps: States of each episode; the first one is the query as it was typed.
            seed: Seed of the choice of terms.
            passes: Episodes of each query.
        """
        ...

    def subset(self, rows: np.ndarray) -> Queries:
        """Some of the queries, in the order of `rows`."""
        ...

    def for_trainer(self, num_envs: int) -> Any:
        """The environment that `Trainer.train_ppo` takes, or a function that makes it."""
        ...

    def search_metrics(self) -> dict[str, Any]:
        """Where episodes are searched, and on the host how many searches were remembered."""
        ...


class Episode(Protocol):
    """The part of a state that `observation` reads; tensors or NumPy arrays."""

    @property
    def added(self) -> Any:
        """[E] int32 terms added so far."""
        ...

    @property
    def allowed(self) -> Any:
        """[E, N] bool candidates that may still be added."""
        ...

    @property
    def similarity(self) -> Any:
        """[E, N] cosines of the candidates with query plus added terms, times the sum's norm."""
        ...

    @property
    def squared_norm(self) -> Any:
        """[E] squared norm of that sum."""
        ...


def query_spec(candidates: int, features: int, state_features: int) -> EnvSpec:
    """Spec of the environment, from the numbers of candidates and features."""
    return EnvSpec(
        name="query-reformulation",
        obs={
            "candidates": tf.TensorSpec([candidates, features + 1], tf.float32),
            "state": tf.TensorSpec([state_features + STEP_FEATURES], tf.float32),
            ACTION_MASK: tf.TensorSpec([candidates + 1], tf.bool),
        },
        action=Discrete(candidates + 1),
    )


def observation(
    candidate_features: Any, state_features: Any, state: Episode, best: Sequence, max_terms: int
) -> dict[str, tf.Tensor]:
    """What the agent sees. Nothing in it comes from a judgment.

    Args:
        candidate_features: [E, N, F] features of the queries' candidates.
        state_features: [E, G] features of the queries.
        state: States of the episodes.
        best: SHOWN_SCORES arrays [E], the highest scores of the present search, best first.
        max_terms: Most terms that an episode adds.
    """
    norm = tf.sqrt(tf.maximum(state.squared_norm, 1e-6))[:, tf.newaxis]
    cosine = (state.similarity / norm)[..., tf.newaxis]
    first, *others = best
    top = tf.maximum(first, 1e-6)
    gaps = [(top - tf.maximum(other, 0.0)) / top for other in others]
    added = tf.cast(state.added, tf.float32) / max_terms
    left = tf.reduce_mean(tf.cast(state.allowed, tf.float32), axis=-1)
    now = tf.stack([added, tf.math.log1p(top), *gaps, left], axis=-1)
    stop = tf.ones([state.allowed.shape[0], 1], tf.bool)
    return {
        "candidates": tf.concat([candidate_features, cosine], axis=-1),
        "state": tf.concat([state_features, now], axis=-1),
        ACTION_MASK: tf.concat([state.allowed, stop], axis=-1),
    }


def similarity_after(state: Episode, weight: Any, with_term: Any, own: Any) -> tuple[Any, Any]:
    """`similarity` and `squared_norm` after a term is added.

    Args:
        state: State before the step.
        weight: [E] weight of the term; 0 where no term is added.
        with_term: [E, N] cosines of the candidates with the term.
        own: [E] `state.similarity` of the term itself.
    """
    similarity = state.similarity + weight[:, np.newaxis] * with_term
    return similarity, state.squared_norm + 2.0 * weight * own + weight * weight
