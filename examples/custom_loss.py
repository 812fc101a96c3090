"""Train with a learning rule of your own, expected SARSA: `python examples/custom_loss.py`."""

import tensorflow as tf

from kytolly import DQNConfig, Trainer, configure_gpu_optimization
from kytolly.policy.dqn import DQNPolicy


class ExpectedSarsaPolicy(DQNPolicy):
    """DQN whose target is the mean over the actions of an epsilon-greedy policy.

    Source: van Seijen et al. 2009, "A Theoretical and Empirical Analysis of Expected Sarsa".
    """

    epsilon = 0.1  # share of random actions in the policy whose values are learned

    def bootstrap(self, batch, weights, hyper):
        """[B] targets: reward + discount * sum over actions of probability * target network's Q."""
        next_q = self.target_q(batch.next_obs)  # [B, A]
        num_actions = next_q.shape[-1]
        best = tf.one_hot(tf.argmax(next_q, axis=-1), num_actions)
        probability = self.epsilon / num_actions + (1.0 - self.epsilon) * best
        next_value = tf.reduce_sum(probability * next_q, axis=-1)
        return tf.stop_gradient(batch.reward + batch.discount * next_value)


if __name__ == "__main__":
    configure_gpu_optimization()
    cfg = DQNConfig(total_env_steps=20_000, seed=1)
    result = Trainer().train_dqn(cfg, env="CartPole-v1", policy=ExpectedSarsaPolicy)
    print(f"return {result.evaluation.return_mean:.1f}, run in {result.run_dir}")
