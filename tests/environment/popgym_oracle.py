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


def played(env, dealt, actions, kinds):
    """Observations [T + 1, E, *obs], rewards [T, E] and ends [T, E] of games in tensor code.

    Args:
        env: A card game in tensor code.
        dealt: [T + 1, E, D] kinds of the cards that are dealt by the reset and by every step from
            each of D decks; -1 where a deck is empty.
        actions: [T, E] actions.
        kinds: How many kinds of cards there are.
    """
    dealers = [Dealer(dealt.shape[1], env.num_cards, kinds) for _ in range(dealt.shape[2])]
    rng = np.random.default_rng(0)

    def draws(cards):
        columns = [
            dealer.draws(column, rng.random()) if column.min() >= 0 else np.zeros(len(column))
            for dealer, column in zip(dealers, cards.T, strict=True)
        ]
        return tf.constant(np.stack(columns, axis=1), tf.float32)

    step = tf.function(env.step, jit_compile=True, autograph=False)
    state = env.reset(draws(dealt[0]))
    seen, rewards, ends = [env.observe(state).numpy()], [], []
    for cards, action in zip(dealt[1:], actions, strict=True):
        state, reward, ended = step(state, tf.constant(action, tf.int32), draws(cards))
        seen.append(env.observe(state).numpy())
        rewards.append(reward.numpy())
        ends.append(ended.numpy())
    return np.array(seen), np.array(rewards), np.array(ends)
