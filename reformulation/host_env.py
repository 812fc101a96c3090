"""Reformulating queries with the search on the host, where its tables do not fit the device.

The episodes are those of `retrieval.query_env`, in NumPy and many at once. Nothing is kept of a
query but its features: every new set of terms is searched for in the whole index, once.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kytolly.environment.spec import ACTION_MASK, EnvSpec
from kytolly.reformulation.baselines import extended, metric_of, query_scores, ranks_of_relevant
from kytolly.reformulation.device_env import longer, observation, query_spec
from kytolly.reformulation.table import (
    NEVER,
    SHOWN_SCORES,
    Query,
    ScoredIndex,
    Settings,
    query_arrays,
)

NO_TERM = -1  # in place of a candidate
REMEMBERED = 200_000  # searches; about 300 bytes each


class SearchCache:
    """What searches came to, by query and set of added terms; the least recently used goes first.

    Terms are added in the order of their places whatever order an episode took, so that a sum has
    one rounding.

    Args:
        queries: With their judgements.
        index: To search.
        settings: The metric, and the weight of an added term.
        entries: Most searches remembered.

    Attributes:
        hits: Searches that were remembered.
        misses: Searches that were made.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        index: ScoredIndex,
        settings: Settings,
        entries: int = REMEMBERED,
    ):
        if entries < 1:
            raise ValueError(f"a cache of {entries} searches holds none, expected at least 1.")
        self.queries, self.index, self.settings, self.entries = queries, index, settings, entries
        self.hits = self.misses = 0
        self._found: collections.OrderedDict[tuple[int, bytes], tuple[float, ...]] = (
            collections.OrderedDict()
        )

    @property
    def hit_rate(self) -> float:
        """Share of the searches that were remembered."""
        return self.hits / max(self.hits + self.misses, 1)

    def __len__(self) -> int:
        return len(self._found)

    def __call__(self, query: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The metric [E] and the best scores [E, SHOWN_SCORES], of queries [E] with terms added.

        Args:
            query: [E] places in `queries`.
            chosen: [E, max_terms] int32 candidates in any order, NO_TERM in place of none.
        """
        chosen = np.sort(chosen, axis=1)
        keys = [(row, terms.tobytes()) for row, terms in zip(query.tolist(), chosen, strict=True)]
        missing = {key: row for row, key in enumerate(keys) if key not in self._found}
        self.hits += len(keys) - len(missing)
        self.misses += len(missing)
        new = self._searched(query, chosen, missing)
        result = np.empty((len(keys), 1 + SHOWN_SCORES), np.float32)
        for row, key in enumerate(keys):
            if key in new:
                result[row] = new[key]
            else:
                result[row] = self._found[key]
                self._found.move_to_end(key)
        self._found.update(new)
        while len(self._found) > self.entries:
            self._found.popitem(last=False)
        return result[:, 0], result[:, 1:]

    def _searched(
        self, query: np.ndarray, chosen: np.ndarray, rows: dict[tuple[int, bytes], int]
    ) -> dict[tuple[int, bytes], tuple[float, ...]]:
        """Key -> the metric and the best scores, of some of the rows."""
        if not rows:
            return {}
        asked = [self.queries[query[row]] for row in rows.values()]
        ranks, best = zip(
            *(
                self._search(one, chosen[row])
                for one, row in zip(asked, rows.values(), strict=True)
            ),
            strict=True,
        )
        values = metric_of(self.settings.metric, ranks, [len(one.relevant) for one in asked])
        found = zip(rows, values.tolist(), best, strict=True)
        return {key: (value, *scores) for key, value, scores in found}

    def _search(self, query: Query, chosen: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Ranks of the relevant documents and the best scores."""
        added = [query.candidates[place] for place in chosen if place != NO_TERM]
        weights = extended(query, added, self.settings.weight)
        scores = query_scores(self.index, query, weights)
        ranks = ranks_of_relevant(query, scores[np.newaxis])[0]
        best = []
        for _ in range(SHOWN_SCORES):
            place = scores.argmax()
            best.append(float(scores[place]))
            scores[place] = NEVER
        return ranks, best


class HostState(NamedTuple):
    """`E` queries on their way; arrays that are not shown here are as in `QueryState`.

    Attributes:
        query: [E] int32 place of the query.
        chosen: [E, max_terms] int32 candidates in the order in which they were added, NO_TERM after
            the last.
        added: [E] int32.
        allowed: [E, N] bool.
        value: [E] the metric now.
        best: [E, SHOWN_SCORES] best scores of the search as it stands.
        similarity: [E, N].
        squared_norm: [E].
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
    """`QueryEnvironment` in NumPy, with searches of the whole index in place of tables.

    Args:
        queries: With at least one candidate each.
        index: To search.
        settings: What an episode may do.

    Attributes:
        number: [Q] place of each query in the collection.
        search: Searches and remembers.
    """

    def __init__(self, queries: Sequence[Query], index: ScoredIndex, settings: Settings):
        self.arrays = query_arrays(queries, settings)
        self.number = self.arrays["number"]
        self.rows, self.index, self.settings = list(queries), index, settings
        self.queries, self.candidates = len(queries), settings.max_candidates
        self.search = SearchCache(self.rows, index, settings)
        features, figures = (
            self.arrays[name].shape[-1] for name in ("candidate_features", "state_features")
        )
        self.spec: EnvSpec = query_spec(self.candidates, features, figures)

    def selected(self, rows: Sequence[int] | np.ndarray) -> HostQueries:
        """Some of the queries, in the order of `rows`."""
        return HostQueries([self.rows[row] for row in rows], self.index, self.settings)

    def begin(self, query: np.ndarray) -> HostState:
        """States of the given [E] queries, as they were typed."""
        query = np.asarray(query, np.int32)
        chosen = np.full((len(query), self.settings.max_terms), NO_TERM, np.int32)
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
        """What the agent sees; nothing in it comes from a judgement."""
        own, figures = (
            self.arrays[name][state.query] for name in ("candidate_features", "state_features")
        )
        seen = observation(own, figures, state, list(state.best.T), self.settings.max_terms)
        return {name: part.numpy() for name, part in seen.items()}

    def step(
        self, state: HostState, action: np.ndarray
    ) -> tuple[HostState, np.ndarray, np.ndarray]:
        """Add a term or stop; the reward [E] is the change of the metric; [E] bool whether over.

        Raises:
            ValueError: An action is not allowed.
        """
        adds = action < self.candidates
        rows, term = np.flatnonzero(adds), np.asarray(action, np.int32)[adds]
        if not state.allowed[rows, term].all():
            wrong = rows[~state.allowed[rows, term]][0]
            raise ValueError(
                f"action {action[wrong]} of copy {wrong} is no candidate that can be added, "
                "expected one that the action mask allows."
            )
        chosen, allowed = state.chosen.copy(), state.allowed.copy()
        value, best = state.value.copy(), state.best.copy()
        chosen[rows, state.added[rows]] = term
        allowed[rows, term] = False
        if len(rows):
            value[rows], best[rows] = self.search(state.query[rows], chosen[rows])
        place = np.where(adds, action, 0)
        weight = np.where(adds, np.float32(self.settings.weight), np.float32(0.0))
        with_term = self.arrays["similarity"][state.query, place]
        own = state.similarity[np.arange(len(place)), place]
        similarity, squared_norm = longer(state, weight, with_term, own)
        added = state.added + adds.astype(np.int32)
        after = HostState(
            state.query, chosen, added, allowed, value, best, similarity, squared_norm
        )
        over = ~adds | (added >= self.settings.max_terms) | ~allowed.any(axis=-1)
        return after, value - state.value, over

    def play(
        self, logits: Callable[[dict[str, np.ndarray]], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Play every query once with the likeliest actions.

        Args:
            logits: Function from what a network sees of [E] observations to [E, N + 1].

        Returns:
            [Q, max_terms] candidates, NO_TERM after the last, and [Q] gains.
        """
        state = self.begin(np.arange(self.queries))
        first, over = state.value, np.zeros(self.queries, bool)
        for _ in range(self.settings.max_terms):
            obs = self.observe(state)
            mask = obs.pop(ACTION_MASK)
            action = np.where(mask, logits(obs), -np.inf).argmax(axis=-1)
            state, _, ends = self.step(state, np.where(over, self.candidates, action))
            over |= ends
        return state.chosen, state.value - first


class QueryVectorEnv(VectorEnv):
    """Episodes of queries for Gymnasium; copies that end begin anew when they are reset.

    The autoreset mode is DISABLED: `reset(options={"reset_mask": ...})` begins episodes in some
    copies, all of them together.

    Args:
        world: The queries.
        copies: Episodes played at once.
        in_order: Copy e always gets query e, modulo their number, instead of a random one.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, world: HostQueries, copies: int, in_order: bool = False):
        if copies < 1:
            raise ValueError(f"copies is {copies}, expected at least 1.")
        self.world, self.num_envs, self.in_order = world, copies, in_order
        self.single_action_space = spaces.Discrete(world.candidates + 1)
        obs: Any = world.spec.obs
        entries: dict[str, spaces.Space] = {
            name: spaces.Box(-np.inf, np.inf, tuple(part.shape), np.float32)
            for name, part in obs.items()
        }
        entries[ACTION_MASK] = spaces.MultiBinary(world.candidates + 1)
        self.single_observation_space = spaces.Dict(entries)
        self.action_space = batch_space(self.single_action_space, copies)
        self.observation_space = batch_space(self.single_observation_space, copies)
        self._state: HostState | None = None
        self._over = np.zeros(copies, bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin episodes in all copies, or in those of `options["reset_mask"]`."""
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        copies = np.arange(self.num_envs) if self._state is None else np.flatnonzero(mask)
        query = copies % self.world.queries
        if not self.in_order:
            query = self.np_random.integers(self.world.queries, size=len(copies))
        fresh = self.world.begin(query)
        if self._state is not None:
            for whole, part in zip(self._state, fresh, strict=True):
                whole[copies] = part
        else:
            self._state = fresh
        self._over[copies] = False
        return self.world.observe(self._state), {}

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Add a term to each copy's query, or stop."""
        if self._state is None or self._over.any():
            raise ValueError(
                "step() where an episode has not begun or is over, expected a reset() of those "
                "copies: pass options={'reset_mask': terminated}."
            )
        self._state, reward, self._over = self.world.step(self._state, np.asarray(actions))
        obs = self.world.observe(self._state)
        return obs, reward, self._over.copy(), np.zeros(self.num_envs, bool), {}
