"""Games of the package `popgym`, and the draws with which ours deals the same cards."""

import numpy as np
import tensorflow as tf


class Dealer:
    """Uniform draws [E] that make `drawn_kind` deal given cards, from decks of as many a kind."""

    def __init__(self, num_games, num_cards, kinds):
        self.left = np.full((num_games, kinds), num_cards // kinds)

    def draws(self, kinds, share=0.5):
        """Draws for the kinds [E]; `share` says where among the cards of its kind each lies."""
        rows = np.arange(len(kinds))
        before = np.cumsum(self.left, axis=1)[rows, kinds] - self.left[rows, kinds]
        place = before + np.floor(share * self.left[rows, kinds]) + 0.5
        draws = place / self.left.sum(axis=1)
        self.left[rows, kinds] -= 1
        return draws


def played(env, dealt, actions):
    """Observations [T + 1, E, O], rewards [T, E] and ends [T, E] of games in tensor code.

    The parts of a Tuple of observations are joined.

    Args:
        env: A card game in tensor code.
        dealt: [T + 1, E, D] kinds of the cards that are dealt by the reset and by every step from
            each of D decks; -1 where a deck is empty.
        actions: [T, E] actions.
    """
    num_kinds = int(dealt.max()) + 1
    dealers = [Dealer(dealt.shape[1], env.num_cards, num_kinds) for _ in range(dealt.shape[2])]
    rng = np.random.default_rng(0)

    def draws(cards):
        columns = [
            dealer.draws(column, rng.random()) if column.min() >= 0 else np.zeros(len(column))
            for dealer, column in zip(dealers, cards.T, strict=True)
        ]
        return tf.constant(np.stack(columns, axis=1), tf.float32)

    step = tf.function(env.step, jit_compile=True, autograph=False)
    state = env.reset(draws(dealt[0]))
    seen, rewards, ends = [joined(env.observe(state))], [], []
    for cards, action in zip(dealt[1:], actions, strict=True):
        state, reward, ended = step(state, tf.constant(action, tf.int32), draws(cards))
        seen.append(joined(env.observe(state)))
        rewards.append(reward.numpy())
        ends.append(ended.numpy())
    return np.array(seen), np.array(rewards), np.array(ends)


def joined(obs):
    """Observations [E, O], those of a Tuple one after another."""
    return np.concatenate(tf.nest.flatten(obs), axis=-1)


class PackageGame:
    """A game of the package, whose cards are known and whose right answers are given.

    Args:
        game: The package's game, after a reset.

    Attributes:
        orders: [D, cards] kinds of the cards of each deck in the order in which they are dealt.
    """

    def __init__(self, game):
        self.game, self.title = game, type(game).__name__
        if self.title.startswith("CountRecall"):
            decks, kinds = [game.value_deck, game.query_deck], game.deck_idx_type
        else:
            ranks = self.title.startswith("HigherLower")
            decks, kinds = [game.deck], game.deck.ranks_idx if ranks else game.deck.suits_idx
        self.orders = np.stack([kinds[deck.idx[::-1]] for deck in decks])

    def right_answer(self, t):
        """The answer in step t that pays; some answer where none does."""
        order = self.orders[0]
        if self.title.startswith("RepeatPrevious"):
            return order[max(0, t + 1 - self.game.k)]
        if self.title.startswith("Autoencode"):
            return order[min(t, 2 * len(order) - 2 - t)]
        if self.title.startswith("CountRecall"):
            return np.count_nonzero(order[: t + 1] == self.orders[1][t])
        return int(order[t + 1] < order[t])


def recorded(game, seed, rng):
    """Cards dealt, actions, observations, rewards and ends of an episode of the package's game.

    Seven in ten actions are the right ones, the others random.
    """
    obs, _ = game.reset(seed=seed)
    package = PackageGame(game)
    seen, actions, rewards, ends = [obs], [], [], []
    while not (ends and ends[-1]):
        guess = int(rng.integers(game.action_space.n))
        action = int(package.right_answer(len(actions))) if rng.random() < 0.7 else guess
        obs, reward, terminated, _, _ = game.step(action)
        seen.append(obs)
        actions.append(action)
        rewards.append(reward)
        ends.append(terminated)
    num_cards = package.orders.shape[1]
    dealt = np.full((len(seen), len(package.orders)), -1)
    dealt[:num_cards] = package.orders.T[: len(seen)]
    return dealt, *map(np.array, (actions, seen, rewards, ends))
