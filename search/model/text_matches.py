"""Features of two texts together: similar tokens, the same ones, and their places.

Nothing here learns. A network that sees these numbers need not learn from a few thousand questions
what "the same word" is.

Sources: Chen et al. 2017, "Reading Wikipedia to Answer Open-Domain Questions", arXiv:1704.00051,
section 3.2 (features of tokens that both texts have); Xiong et al. 2017, "End-to-End Neural Ad-hoc
Ranking with Kernel Pooling", arXiv:1706.06613 (how many tokens are how similar); Hui et al. 2017,
"PACRR", arXiv:1704.03940 (neighbors that match neighbors).
"""

from __future__ import annotations

from collections.abc import Sequence

from keras import KerasTensor, ops

KERNELS = tuple(tenth / 10 for tenth in range(-1, 11))  # cosines around which tokens are counted
KERNEL_WIDTH = 0.1
PLACES = 10.0  # a match counts half so many tokens after the beginning
LIKE = 0.3  # cosine from which a token of the question is matched
TOKEN_FEATURES, PAIR_FEATURES = 4, len(KERNELS) + 10


def match_features(
    vectors: Sequence[KerasTensor],
    words: Sequence[KerasTensor],
    rarities: Sequence[KerasTensor],
    same: KerasTensor,
):
    """Features of each token, and of the pair of texts.

    Args:
        vectors: [B, Q, D] and [B, L, D] of the tokens of the question and of the context.
        words: [B, Q] and [B, L] float, 1 where there is a token, else 0.
        rarities: [B, Q] and [B, L] how rare each token is; 0 where there is none.
        same: [B, Q, L] float, 1 where the tokens are the same.

    Returns:
        [B, Q, TOKEN_FEATURES] and [B, L, TOKEN_FEATURES] of each token: the largest cosine with one
        of the other text, or 0, 1 where the same one is there, its rarity, and the product of
        these two.
        [B, PAIR_FEATURES] of the pair.
    """
    unit = [
        vector / ops.maximum(ops.norm(vector, axis=-1, keepdims=True), 1e-3) for vector in vectors
    ]
    pairs = words[0][:, :, None] * words[1][:, None, :]
    cosines = pairs * ops.matmul(unit[0], ops.transpose(unit[1], (0, 2, 1)))
    same = pairs * same
    near = [ops.relu(ops.max(cosines, axis=axis)) for axis in (2, 1)]
    exact = [ops.max(same, axis=axis) for axis in (2, 1)]
    tokens = [
        ops.stack([a, b, rarity, b * rarity], axis=-1)
        for a, b, rarity in zip(near, exact, rarities, strict=True)
    ]
    shares = [share_of_sum(rarity) for rarity in rarities]
    kernels = [ops.exp(-ops.square((cosines - one) / KERNEL_WIDTH) / 2) for one in KERNELS]
    of_question = [
        *(ops.log1p(ops.sum(pairs * one, axis=2)) for one in kernels),
        exact[0],
        near[0],
        ops.max(next_to_each_other(same), axis=2),
        ops.sqrt(ops.max(next_to_each_other(ops.relu(cosines)), axis=2)),
    ]
    early = PLACES / (PLACES + ops.arange(ops.shape(words[1])[1], dtype="float32"))
    missed = ops.where(near[0] < LIKE, rarities[0], 0.0)
    of_pair = [
        *(ops.sum(shares[0] * one, axis=1) for one in of_question),
        *(ops.sum(shares[1] * one, axis=1) for one in (exact[1], near[1], exact[1] * early)),
        ops.sum(share_of_sum(words[0]) * exact[0], axis=1),
        ops.log1p(ops.sum(words[1], axis=1)),
        ops.max(missed, axis=1),
    ]
    return tokens[0], tokens[1], ops.stack(of_pair, axis=-1)


def next_to_each_other(values: KerasTensor):
    """[B, Q, L] the product of each number with that of the next tokens of both texts."""
    return values * ops.pad(values[:, 1:, 1:], [[0, 0], [0, 1], [0, 1]])


def share_of_sum(values: KerasTensor):
    """[B, n] values, divided by their sum."""
    return values / ops.maximum(ops.sum(values, axis=1, keepdims=True), 1e-3)
