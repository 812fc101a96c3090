"""Settings of fine-tuning a query rewriter by PPO."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Annotated

from msgspec import Meta

from kytolly.config.fields import Environments, EnvSteps, NotNegative, Positive, Share, setting
from kytolly.config.ppo_kl import PPOKLConfig
from kytolly.config.rollout import Minibatches

TEXT = Meta(min_length=1, max_length=4_096, pattern=r"\A[^\0]*\Z", description="text")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RewritingPPOConfig(PPOKLConfig):
    """Settings of fine-tuning a query rewriter, beside those of PPO with a KL penalty.

    An episode is a query, an env step a word.
    """

    fine_tune: Annotated[str, TEXT] | None = setting(
        None, "run of `kytolly train rewriter` whose rewriter is improved"
    )
    metric: Annotated[str, TEXT] = setting(
        "ndcg@10", "metric of BM25 whose change is the reward: ndcg@K, ap, recall@K or mrr@K"
    )
    term_weight: Annotated[float, Meta(gt=0, le=1_000)] = setting(
        0.3, "weight in BM25 of a written term; a word of the query has 1"
    )
    term_cost: NotNegative = setting(0.0, "reward that a written term must earn")
    temperature: Annotated[float, Meta(ge=0.01, le=10)] = setting(
        0.5,
        "what the rewriter's logits are divided by before training: below 1, its best terms are "
        "tried more often; a rewriter that learned by PPO keeps its own",
    )
    end_probability: Annotated[float, Meta(gt=0, lt=1)] = setting(
        0.01,
        "mean probability, before training, of ending instead of writing a term; a rewriter that "
        "learned by PPO keeps its own",
    )
    pool_documents: Annotated[int, Meta(ge=1, le=2**20), "documents"] = setting(
        1_000, "documents of each query that training ranks, beside the relevant ones"
    )
    total_env_steps: EnvSteps = setting(50_000, "length of training, in words")
    num_envs: Environments = setting(256, "queries that are rewritten together")
    rollout_steps: Annotated[int, Meta(ge=1, le=10**6), "env steps"] = setting(
        10, "words of each query's place per iteration"
    )
    epochs: Annotated[int, Meta(ge=1, le=10**4), "passes"] = setting(4, "passes over a rollout")
    num_minibatches: Minibatches = setting(4, "equal parts of a rollout, with one gradient each")
    learning_rate: Positive = setting(3e-4, "Adam's step size at the start")
    gamma: Share = setting(1.0, "discount per env step")
    max_grad_norm: Positive | None = setting(
        1.0, "largest norm of the gradient of all weights together; none: any"
    )

    @property
    def command(self) -> str | None:
        """As in the parent."""
        run = shlex.quote(str(self.fine_tune))
        return f"kytolly train rewriter --collection DIR --fine-tune {run}"
