"""POPGym in tensor code: four card games, and a CartPole that shows no velocities.

Source of all rules: Morad et al. 2023, "POPGym: Benchmarking Partially Observable Reinforcement
Learning", arXiv:2303.01859, with the constants of the package `popgym`.

No deck is shuffled. A game holds how many cards of each kind (suit, rank or color) are left, and
draws the next one with these weights, which gives every order of kinds its probability.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple, Self

import tensorflow as tf

from kytolly.environment.encoding import Encoding
from kytolly.environment.spec import Discrete, EnvSpec, StepOutcome
from kytolly.environment.tensor.cartpole import CartPole

DECK = 52  # cards
SUITS, RANKS, COLORS = 4, 13, 2
LEVELS = "Easy", "Medium", "Hard"


def drawn_kind(cards: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """The kind [E] int32 of the next card of decks with `cards` [E, K] int32 of each kind.

    Args:
        cards: [E, K] cards of each kind that are left.
        uniform: [E] draws from [0, 1).
    """
    *ends, total = itertools.accumulate(tf.unstack(cards, axis=-1))
    place = tf.cast(uniform * tf.cast(total, tf.float32), tf.int32)  # in a deck in order of kinds
    return tf.add_n([tf.cast(place >= end, tf.int32) for end in ends])


def without_card(cards: tf.Tensor, kind: tf.Tensor) -> tf.Tensor:
    """The cards [E, K] of each kind that are left when one of `kind` [E] was drawn."""
    return cards - tf.one_hot(kind, cards.shape[-1], dtype=tf.int32)


def full_decks(num_envs: int | None, num_cards: int, kinds: int) -> tf.Tensor:
    """The cards [E, K] int32 of each kind before any was drawn."""
    return tf.fill([num_envs, kinds], num_cards // kinds)


class CardGame:
    """What the games have in common: a level, whole decks, and numbers to observe, as one-hot.

    Attributes:
        num_cards: Cards of all decks together.
    """

    reset_uniforms, step_uniforms = 1, 1
    num_decks = 1, 2, 3  # of each level

    def __init__(self, level: str):
        """Make the game of one of the levels `Easy`, `Medium` and `Hard`."""
        self.level = level
        self.num_cards = DECK * self.num_decks[LEVELS.index(level)]

    @classmethod
    def easy(cls) -> Self:
        """The game of the easy level."""
        return cls("Easy")

    @classmethod
    def medium(cls) -> Self:
        """The game of the medium level."""
        return cls("Medium")

    @classmethod
    def hard(cls) -> Self:
        """The game of the hard level."""
        return cls("Hard")

    def make_spec(self, numbers: dict[str, tuple[int, ...]], actions: int) -> EnvSpec:
        """The spec of a game that shows numbers as one-hot.

        Args:
            numbers: How many values each number of an entry has; the entry "" is the observation.
            actions: How many actions there are.
        """
        obs = {name: tf.TensorSpec([sum(counts)], tf.float32) for name, counts in numbers.items()}
        encodings = (
            (name, Encoding((len(counts),) if len(counts) > 1 else (), counts, (0,) * len(counts)))
            for name, counts in numbers.items()
        )
        return EnvSpec(
            name=f"popgym-{type(self).__name__}{self.level}-v0",
            obs=obs.get("", obs),
            action=Discrete(actions),
            encodings=tuple(encodings),
        )


class RepeatState(NamedTuple):
    """State of `E` games of RepeatPrevious."""

    cards: tf.Tensor  # [E, 4] int32 of each suit that are left in the deck
    seen: tf.Tensor  # [E, k] int8 suits of the last k cards, the newest first


class RepeatPrevious(CardGame):
    """Cards are dealt one by one; each action names the suit of the card k - 1 steps ago.

    Observations: the suit of the newest card, one-hot [E, 4]. Actions: the four suits. `k` is 4,
    32 or 64, of 1, 2 or 3 decks. Once k cards are dealt, an action pays 1 / (cards - k) where it
    is right and minus that where it is wrong: a perfect game returns 1. An episode terminates
    with the last card.
    """

    def __init__(self, level: str):
        """Make the game of one of the levels `Easy`, `Medium` and `Hard`."""
        super().__init__(level)
        self.k = (4, 32, 64)[LEVELS.index(level)]
        self.spec = self.make_spec({"": (SUITS,)}, SUITS)

    def reset(self, uniform: tf.Tensor) -> RepeatState:
        """States of new games, in which one card is dealt."""
        num_envs = uniform.shape[0]
        decks = full_decks(num_envs, self.num_cards, SUITS)
        return self._deal(decks, tf.zeros([num_envs, self.k], tf.int8), uniform[:, 0])

    def observe(self, state: RepeatState) -> tf.Tensor:
        """The suits of the newest cards, one-hot [E, 4]."""
        return tf.one_hot(tf.cast(state.seen[:, 0], tf.int32), SUITS)

    def step(self, state: RepeatState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E]; the next card is dealt after the answer."""
        left = tf.reduce_sum(state.cards, axis=-1)
        worth = 1.0 / (self.num_cards - self.k)
        is_right = action == tf.cast(state.seen[:, -1], tf.int32)
        is_asked = self.num_cards - left >= self.k
        reward = tf.where(is_asked, tf.where(is_right, worth, -worth), 0.0)
        return self._deal(state.cards, state.seen, uniform[:, 0]), reward, left <= 1

    def _deal(self, cards: tf.Tensor, seen: tf.Tensor, uniform: tf.Tensor) -> RepeatState:
        suit = drawn_kind(cards, uniform)
        seen = tf.concat([_column(suit), seen[:, :-1]], axis=-1)
        return RepeatState(without_card(cards, suit), seen)


class AutoencodeState(NamedTuple):
    """State of `E` games of Autoencode."""

    cards: tf.Tensor  # [E, 4] int32 of each suit that are left in the deck
    stack: tf.Tensor  # [E, cards] int8 suits that were dealt and not yet asked for, the top first
    asked: tf.Tensor  # [E] int32 cards that were asked for


class Autoencode(CardGame):
    """A deck is dealt card by card; then the agent names all suits in reverse order.

    Observations, one-hot, named as the parts of a Tuple: "0" [E, 2] whether the deck is still dealt
    (1) or its suits are asked for (0), and "1" [E, 4] the suit of the newest card, 0 after the
    first answer. Actions: the four suits. An answer pays 1 / cards where it is right and minus that
    where it is wrong: a perfect game returns 1. An episode terminates with the last answer.
    """

    def __init__(self, level: str):
        """Make the game of one of the levels `Easy`, `Medium` and `Hard`: 1, 2 or 3 decks."""
        super().__init__(level)
        self.spec = self.make_spec({"0": (2,), "1": (SUITS,)}, SUITS)

    def reset(self, uniform: tf.Tensor) -> AutoencodeState:
        """States of new games, in which one card is dealt."""
        num_envs = uniform.shape[0]
        decks = full_decks(num_envs, self.num_cards, SUITS)
        suit = drawn_kind(decks, uniform[:, 0])
        empty = tf.zeros([num_envs, self.num_cards - 1], tf.int8)
        stack = tf.concat([_column(suit), empty], axis=-1)
        return AutoencodeState(without_card(decks, suit), stack, tf.zeros([num_envs], tf.int32))

    def observe(self, state: AutoencodeState) -> dict[str, tf.Tensor]:
        """Observations: "0" [E, 2] and "1" [E, 4]."""
        dealing = tf.cast(tf.reduce_sum(state.cards, axis=-1) > 0, tf.int32)
        suit = tf.where(state.asked > 0, 0, tf.cast(state.stack[:, 0], tf.int32))
        return {"0": tf.one_hot(dealing, 2), "1": tf.one_hot(suit, SUITS)}

    def step(self, state: AutoencodeState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E] after a card or an answer."""
        dealing = tf.reduce_sum(state.cards, axis=-1) > 0
        suit = drawn_kind(state.cards, uniform[:, 0])
        top, worth = state.stack[:, :1], 1.0 / self.num_cards
        is_right = action == tf.cast(top[:, 0], tf.int32)
        reward = tf.where(dealing, 0.0, tf.where(is_right, worth, -worth))
        asked = state.asked + tf.cast(tf.logical_not(dealing), tf.int32)
        pushed = tf.concat([_column(suit), state.stack[:, :-1]], axis=-1)
        popped = tf.concat([state.stack[:, 1:], tf.zeros_like(top)], axis=-1)
        dealing_rows = dealing[:, tf.newaxis]
        cards = tf.where(dealing_rows, without_card(state.cards, suit), state.cards)
        stack = tf.where(dealing_rows, pushed, popped)
        return AutoencodeState(cards, stack, asked), reward, asked == self.num_cards


class CountState(NamedTuple):
    """State of `E` games of CountRecall."""

    cards: tf.Tensor  # [E, K] int32 of each kind that are left in the deck to be counted
    questions: tf.Tensor  # [E, K] int32 of each kind that are left in the deck of questions
    card: tf.Tensor  # [E] int32 kind of the newest card
    question: tf.Tensor  # [E] int32 kind that is asked for


class CountRecall(CardGame):
    """Cards are dealt one by one; each action says how many of a kind that is asked for came.

    The kinds are 2 colors of 1 deck, 4 suits of 2, or 13 ranks of 4; questions are dealt from
    as many decks of their own. Observations: the kind of the newest card, and the kind that is
    asked for; both one-hot, [E, 2 K]. Actions: the numbers from 0 to the cards of a kind. The
    newest card counts. An answer pays 1 / (cards - 1) where it is right and minus that where it is
    wrong: a perfect game returns 1. An episode terminates with the last card.
    """

    reset_uniforms = step_uniforms = 2
    num_decks = 1, 2, 4

    def __init__(self, level: str):
        """Make the game of one of the levels `Easy`, `Medium` and `Hard`."""
        super().__init__(level)
        self.kinds = (COLORS, SUITS, RANKS)[LEVELS.index(level)]
        self.of_kind = self.num_cards // self.kinds
        self.spec = self.make_spec({"": (self.kinds, self.kinds)}, self.of_kind + 1)

    def reset(self, uniform: tf.Tensor) -> CountState:
        """States of new games, in which one card and one question are dealt."""
        decks = full_decks(uniform.shape[0], self.num_cards, self.kinds)
        return self._deal(decks, decks, uniform)

    def observe(self, state: CountState) -> tf.Tensor:
        """Observations [E, 2 K]."""
        shown = [tf.one_hot(kind, self.kinds) for kind in (state.card, state.question)]
        return tf.concat(shown, axis=-1)

    def step(self, state: CountState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E]; what comes next is dealt after the answer."""
        asked = tf.one_hot(state.question, self.kinds, dtype=tf.int32)
        came = self.of_kind - tf.reduce_sum(state.cards * asked, axis=-1)
        worth = 1.0 / (self.num_cards - 1)
        reward = tf.where(action == came, worth, -worth)
        last = tf.reduce_sum(state.cards, axis=-1) <= 1
        return self._deal(state.cards, state.questions, uniform), reward, last

    def _deal(self, cards: tf.Tensor, questions: tf.Tensor, uniform: tf.Tensor) -> CountState:
        card, question = drawn_kind(cards, uniform[:, 0]), drawn_kind(questions, uniform[:, 1])
        left = without_card(cards, card), without_card(questions, question)
        return CountState(*left, card, question)


class HigherLowerState(NamedTuple):
    """State of `E` games of HigherLower."""

    cards: tf.Tensor  # [E, 13] int32 of each rank that are left in the deck
    rank: tf.Tensor  # [E] int32 of the newest card


class HigherLower(CardGame):
    """Cards are dealt one by one; each action bets whether the next one is higher or lower.

    Observations: the rank of the newest card, one-hot [E, 13], from the ace to the king. Actions:
    0 higher, 1 lower. A bet pays 1 / cards where it is right, minus that where it is wrong and 0
    where the ranks are equal. Who counts the cards bets better, and nobody can return 1. An
    episode terminates with the last card of 1, 2 or 3 decks.
    """

    def __init__(self, level: str):
        """Make the game of one of the levels `Easy`, `Medium` and `Hard`."""
        super().__init__(level)
        self.spec = self.make_spec({"": (RANKS,)}, 2)

    def reset(self, uniform: tf.Tensor) -> HigherLowerState:
        """States of new games, in which one card is dealt."""
        return self._deal(full_decks(uniform.shape[0], self.num_cards, RANKS), uniform[:, 0])

    def observe(self, state: HigherLowerState) -> tf.Tensor:
        """The ranks of the newest cards, one-hot [E, 13]."""
        return tf.one_hot(state.rank, RANKS)

    def step(self, state: HigherLowerState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E] after the next card."""
        after = self._deal(state.cards, uniform[:, 0])
        rise = tf.cast(tf.sign(after.rank - state.rank), tf.float32)
        reward = tf.where(action == 0, rise, -rise) / self.num_cards
        return after, reward, tf.reduce_sum(after.cards, axis=-1) == 0

    def _deal(self, cards: tf.Tensor, uniform: tf.Tensor) -> HigherLowerState:
        rank = drawn_kind(cards, uniform)
        return HigherLowerState(without_card(cards, rank), rank)


def _column(kind: tf.Tensor) -> tf.Tensor:
    """Kinds [E] as a column [E, 1] int8."""
    return tf.cast(kind, tf.int8)[:, tf.newaxis]


class PositionOnlyCartPole(CartPole):
    """CartPole that shows position and angle, [E, 2], and pays 1 for a whole episode.

    The paper calls it Stateless CartPole. Reward: 1 / (the longest episode) for every step, the
    last included.

    Source: Morad et al. 2023, "POPGym: Benchmarking Partially Observable Reinforcement Learning",
    arXiv:2303.01859, with the constants of the package `popgym`.
    """

    def __init__(self, level: str):
        """Make the environment: `Easy`, `Medium` and `Hard` last 200, 400 and 600 env steps."""
        self.steps = (200, 400, 600)[LEVELS.index(level)]
        self.spec = CartPole.spec._replace(
            name=f"popgym-PositionOnlyCartPole{level}-v0",
            obs=tf.TensorSpec([2], tf.float32),
            max_episode_steps=self.steps,
            reward_threshold=None,
        )

    @classmethod
    def easy(cls) -> PositionOnlyCartPole:
        """The level of 200 env steps."""
        return cls("Easy")

    @classmethod
    def medium(cls) -> PositionOnlyCartPole:
        """The level of 400 env steps."""
        return cls("Medium")

    @classmethod
    def hard(cls) -> PositionOnlyCartPole:
        """The level of 600 env steps."""
        return cls("Hard")

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Observations [E, 2]: position and angle."""
        return state[:, ::2]

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state [E, 4], reward [E] and terminated [E] after a push of 20 ms."""
        state, reward, fallen = super().step(state, action, uniform)
        return state, reward / self.steps, fallen
