"""Queries whose episodes search the index on the host, where tables would not fit the device.

The episodes are those of `DeviceQueries`, in NumPy and many at once. Only the features of a query
are kept: every new set of terms is searched for in the whole index, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kytolly.environment.spec import ACTION_MASK, EnvSpec
from kytolly.reformulation.episode import (
    NO_TERM,
    GainExamples,
    PlayedQueries,
    observation,
    query_spec,
    similarity_after,
)
from kytolly.reformulation.gains import CHUNK, concatenation, next_terms
from kytolly.reformulation.pool import Pool, ScoredIndex, make_pool
from kytolly.reformulation.query import EpisodeRules, Query
from kytolly.reformulation.scoring import query_ranks
from kytolly.reformulation.search_cache import SearchCache
from kytolly.reformulation.table import query_arrays
from kytolly.retrieval.metrics import NOT_RANKED, metric

POOL_BYTES = 2**28  # most bytes of the pools that are held at once


class HostState(NamedTuple):
    """States of `E` episodes.

    Attributes:
        query: [E] int32 place of the query.
        chosen: [E, max_terms] int32 candidates in the order in which they were added, NO_TERM after
            the last.
        added: [E] int32 terms added so far.
        allowed: [E, N] bool candidates that may still be added.
        value: [E] the metric now.
        best: [E, SHOWN_SCORES] best scores of the present search.
        similarity: [E, N] cosines of the candidates with the sum of query and added terms, times
            the norm of the sum.
        squared_norm: [E] squared norm of the sum.
    """

    query: np.ndarray
    chosen: np.ndarray
    added: np.ndarray
    allowed: np.ndarray
    value: np.ndarray
    best: np.ndarray
    similarity: np.ndarray
    squared_norm: np.ndarray


class HostQueries:
    """The episodes of `DeviceQueries` in NumPy, with searches of the whole index.

    Args:
        queries: Queries with at least one candidate each.
        index: The index to search.
        rules: What an episode may do.
        in_order: Environment e always gets query e, modulo their number, instead of a random one.

    Attributes:
        search: Searches and remembers.
    """

    table_bytes = 0  # nothing is on the device

    def __init__(
        self,
        queries: Sequence[Query],
        index: ScoredIndex,
        rules: EpisodeRules,
        in_order: bool = False,
    ):
        self.arrays = query_arrays(queries, rules)
        self.rows, self.index, self.rules, self.in_order = list(queries), index, rules, in_order
        self.num_queries, self.candidates = len(queries), rules.max_candidates
        self.search = SearchCache(self.rows, index, rules)
        candidate_features, state_features = (
            self.arrays[name].shape[-1] for name in ("candidate_features", "state_features")
        )
        self.spec: EnvSpec = query_spec(self.candidates, candidate_features, state_features)

    def begin(self, query: np.ndarray) -> HostState:
        """States of the given [E] queries, as they were typed."""
        query = np.asarray(query, np.int32)
        chosen = np.full((len(query), self.rules.max_terms), NO_TERM, np.int32)
        value, best = self.search(query, chosen)
        return HostState(
            query=query,
            chosen=chosen,
            added=np.zeros(len(query), np.int32),
            allowed=self.arrays["allowed"][query],
            value=value,
            best=best,
            similarity=self.arrays["query_similarity"][query],
            squared_norm=np.ones(len(query), np.float32),
        )

    def observe(self, state: HostState) -> dict[str, np.ndarray]:
        """What the agent sees. Nothing in it comes from a judgment."""
        candidates, own = (
            self.arrays[name][state.query] for name in ("candidate_features", "state_features")
        )
        seen = observation(candidates, own, state, list(state.best.T), self.rules.max_terms)
        return {name: part.numpy() for name, part in seen.items()}

    def step(
        self, state: HostState, action: np.ndarray
    ) -> tuple[HostState, np.ndarray, np.ndarray]:
        """Add a term or stop.

        Returns:
            The states after it, [E] changes of the metric, and [E] bool, whether episodes are over.

        Raises:
            ValueError: An action is not allowed.
        """
        adds = action < self.candidates
        rows, term = np.flatnonzero(adds), np.asarray(action, np.int32)[adds]
        if not state.allowed[rows, term].all():
            wrong = rows[~state.allowed[rows, term]][0]
            raise ValueError(
                f"action {action[wrong]} of environment {wrong} is no candidate that can be added, "
                "expected one that the action mask allows."
            )
        chosen, allowed = state.chosen.copy(), state.allowed.copy()
        value, best = state.value.copy(), state.best.copy()
        chosen[rows, state.added[rows]] = term
        allowed[rows, term] = False
        if len(rows):
            value[rows], best[rows] = self.search(state.query[rows], chosen[rows])
        place = np.where(adds, action, 0)
        weight = np.where(adds, np.float32(self.rules.weight), np.float32(0.0))
        with_term = self.arrays["similarity"][state.query, place]
        own = state.similarity[np.arange(len(place)), place]
        similarity, squared_norm = similarity_after(state, weight, with_term, own)
        added = state.added + adds.astype(np.int32)
        after = HostState(
            state.query, chosen, added, allowed, value, best, similarity, squared_norm
        )
        over = ~adds | (added >= self.rules.max_terms) | ~allowed.any(axis=-1)
        return after, value - state.value, over

    def greedy_player(self, network: keras.Model, xla: bool = True) -> Callable[[], PlayedQueries]:
        """A function that plays every query once, always with the likeliest action.

        Args:
            network: Keras model ({candidates, state}) -> (logits [E, N + 1], value [E]).
            xla: Trace the network. That takes a while, so it pays if the function is called often.
        """

        def logits(obs: dict[str, Any]) -> tf.Tensor:
            return network({name: tf.convert_to_tensor(part) for name, part in obs.items()})[0]

        program = tf.function(logits, autograph=False) if xla else logits
        return lambda: self.play(lambda obs: program(obs).numpy())

    def play(self, logits: Callable[[dict[str, np.ndarray]], np.ndarray]) -> PlayedQueries:
        """Play every query once with the likeliest actions.

        Args:
            logits: Function from what a network sees of [E] observations to [E, N + 1].
        """
        state = self.begin(np.arange(self.num_queries))
        first, over = state.value, np.zeros(self.num_queries, bool)
        for _ in range(self.rules.max_terms):
            obs = self.observe(state)
            mask = obs.pop(ACTION_MASK)
            action = np.where(mask, logits(obs), -np.inf).argmax(axis=-1)
            state, _, ends = self.step(state, np.where(over, self.candidates, action))
            over |= ends
        return PlayedQueries(state.chosen, state.value - first)

    def gain_examples(self, steps: int, seed: int = 0, passes: int = 1) -> GainExamples:
        """Examples along episodes of each query in which terms of higher gain are added sooner.

        Args:
            steps: States of each episode; the first one is the query as it was typed.
            seed: Seed of the choice of terms.
            passes: Episodes of each query.
        """
        return concatenation(self._gain_parts(steps, seed, passes))

    def one_step_gains(self, state: HostState, pools: Sequence[Pool]) -> np.ndarray:
        """[E, N + 1] reward of every action in the given states; 0 where it is not allowed.

        Args:
            state: States of [E] episodes.
            pools: [E] pools of their queries.
        """
        wide = max(1, *(len(pool.relevant) for pool in pools))
        ranks = np.full((len(pools), self.candidates, wide), NOT_RANKED, np.int32)
        for row, pool in enumerate(pools):
            columns = pool.columns.reshape(len(pool.columns), -1)
            scores = pool.base.ravel() + columns
            for term in state.chosen[row]:
                if term != NO_TERM:
                    scores += columns[term]
            query = self.rows[state.query[row]]._replace(relevant=pool.relevant, excluded=-1)
            ranks[row, : len(columns), : len(pool.relevant)] = query_ranks(query, scores)
        counts = self.arrays["relevant_count"][state.query]
        counts = np.broadcast_to(counts[:, np.newaxis], ranks.shape[:2])
        found = metric(self.rules.metric, ranks, counts).numpy() - state.value[:, np.newaxis]
        gain = np.where(state.allowed, found, np.float32(0.0))
        return np.concatenate([gain, np.zeros((len(gain), 1), np.float32)], axis=-1)

    def subset(self, rows: np.ndarray) -> HostQueries:
        """Some of the queries, in the order of `rows`."""
        chosen = [self.rows[row] for row in rows]
        return HostQueries(chosen, self.index, self.rules, self.in_order)

    def for_trainer(self, num_envs: int) -> Callable[[], QueryVectorEnv]:
        """A function that makes the environment that `Trainer.train_ppo` takes."""
        return lambda: QueryVectorEnv(self, num_envs)

    def search_metrics(self) -> dict[str, Any]:
        """How many searches were made, and how many were remembered."""
        cache = self.search
        metrics = {"hits": cache.hits, "misses": cache.misses, "hit_rate": cache.hit_rate}
        return {"where": "host", **metrics}

    def _gain_parts(self, steps: int, seed: int, passes: int) -> Iterator[GainExamples]:
        rng = np.random.default_rng(seed)
        for first, pools in self._pools_at_a_time(CHUNK // passes or 1):
            place = np.tile(np.arange(len(pools)), passes)
            rows = (first + place).astype(np.int32)
            state, fresh = self.begin(rows), np.ones(len(rows), bool)
            for added in range(steps):
                obs = self.observe(state)
                allowed = obs[ACTION_MASK]
                gain = self.one_step_gains(state, [pools[one] for one in place])
                columns = (obs["candidates"], obs["state"], allowed, gain, rows)
                whole = (*columns, np.full(len(rows), added, np.int32))
                yield GainExamples(*(column[fresh] for column in whole))
                action = np.where(fresh, next_terms(gain, allowed, rng), self.candidates)
                state, _, over = self.step(state, action)
                fresh = fresh & ~over

    def _pools_at_a_time(self, most: int) -> Iterator[tuple[int, list[Pool]]]:
        """The first query and the pools of as many queries as memory should hold."""
        first, pools, taken = 0, [], 0
        for row, query in enumerate(self.rows):
            pools.append(make_pool(query, self.index, self.rules))
            taken += pools[-1].columns.nbytes
            if len(pools) == most or taken > POOL_BYTES or row + 1 == self.num_queries:
                yield first, pools
                first, pools, taken = row + 1, [], 0


class QueryVectorEnv(VectorEnv):
    """Episodes of queries for Gymnasium.

    The autoreset mode is DISABLED: `reset(options={"reset_mask": ...})` begins new episodes in the
    chosen environments.

    Args:
        queries: The queries.
        num_envs: Episodes played at once.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, queries: HostQueries, num_envs: int):
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, expected at least 1.")
        self.queries, self.num_envs = queries, num_envs
        self.single_action_space = spaces.Discrete(queries.candidates + 1)
        obs: Any = queries.spec.obs
        entries: dict[str, spaces.Space] = {
            name: spaces.Box(-np.inf, np.inf, tuple(part.shape), np.float32)
            for name, part in obs.items()
        }
        entries[ACTION_MASK] = spaces.MultiBinary(queries.candidates + 1)
        self.single_observation_space = spaces.Dict(entries)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._state: HostState | None = None
        self._over = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin episodes in all environments, or in those of `options["reset_mask"]`."""
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        places = np.arange(self.num_envs) if self._state is None else np.flatnonzero(mask)
        query = places % self.queries.num_queries
        if not self.queries.in_order:
            query = self.np_random.integers(self.queries.num_queries, size=len(places))
        fresh = self.queries.begin(query)
        if self._state is not None:
            for whole, part in zip(self._state, fresh, strict=True):
                whole[places] = part
        else:
            self._state = fresh
        self._over[places] = False
        return self.queries.observe(self._state), {}

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Add a term to the query of each environment, or stop."""
        if self._state is None or self._over.any():
            raise ValueError(
                "step() where an episode has not begun or is over, expected a reset() of those "
                "environments: pass options={'reset_mask': terminated}."
            )
        self._state, reward, self._over = self.queries.step(self._state, np.asarray(actions))
        obs = self.queries.observe(self._state)
        return obs, reward, self._over.copy(), np.zeros(self.num_envs, bool), {}
