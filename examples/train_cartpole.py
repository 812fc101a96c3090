"""Train DQN on CartPole: `python examples/train_cartpole.py`."""

from kytolly import DQNConfig, Trainer, configure_gpu_optimization
from kytolly.config.tuned import tuned_settings

configure_gpu_optimization()
settings = {"total_env_steps": 50_000, **tuned_settings("dqn", "CartPole-v1"), "seed": 1}
result = Trainer().train_dqn(DQNConfig(**settings), env="CartPole-v1")
print(f"return {result.evaluation.return_mean:.1f}, run in {result.run_dir}")
