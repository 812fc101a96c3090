"""The network of the agent: a scorer of candidates, made for the features of some queries."""

from __future__ import annotations

from kytolly.machine import configure as gpu_optimize

gpu_optimize.require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import tensorflow as tf

from kytolly.environment.mask import without_mask
from kytolly.environment.spec import ACTION_MASK
from kytolly.model.candidate_scorer import CandidateScorer
from kytolly.reformulation.episode import Queries
from kytolly.reformulation.options import ReformulationOptions

HALF = "mixed_float16"


def make_scorer(queries: Queries, options: ReformulationOptions) -> CandidateScorer:
    """A network for the features of queries, which also give the statistics that it scales by."""
    agent = options.rl_agent
    network = CandidateScorer(agent.hidden_units, dropout=agent.dropout)
    seen = queries.observe(queries.begin(tf.range(queries.num_queries)))
    network(without_mask(seen))
    present = seen[ACTION_MASK][:, :-1]
    network.adapt(tf.boolean_mask(seen["candidates"], present), seen["state"])
    return network


def make_half_precision_scorer(
    network: keras.Model, queries: Queries, options: ReformulationOptions
) -> CandidateScorer:
    """A network with the same weights that computes in half precision."""
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(HALF)
    try:
        half = make_scorer(queries, options)
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    half.set_weights(network.get_weights())
    return half
