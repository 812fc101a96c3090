"""Four card games of POPGym in tensor code: tasks that nobody can play without memory.

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

    def make_spec(self, counts: tuple[int, ...], actions: int) -> EnvSpec:
        """The spec of a game that shows one number below each of `counts`."""
        shape = () if len(counts) == 1 else (len(counts),)
        encoding = Encoding(shape, counts, (0,) * len(counts))
        return EnvSpec(
            name=f"popgym-{type(self).__name__}{self.level}-v0",
            obs=tf.TensorSpec([sum(counts)], tf.float32),
            action=Discrete(actions),
            encodings=(("", encoding),),
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
        self.spec = self.make_spec((SUITS,), SUITS)

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
        newest = tf.cast(suit, tf.int8)[:, tf.newaxis]
        return RepeatState(without_card(cards, suit), tf.concat([newest, seen[:, :-1]], axis=-1))
