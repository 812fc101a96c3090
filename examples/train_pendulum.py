"""Train PPO on Pendulum, whose action is a real number: `python examples/train_pendulum.py`."""

from config import PPOConfig
from gpu_optimize import configure_gpu_optimization
from trainer import Trainer
from tuned import tuned_settings

configure_gpu_optimization()
settings = {**tuned_settings("ppo", "Pendulum-v1"), "seed": 1}
result = Trainer().train_ppo(PPOConfig(**settings), env="Pendulum-v1")
print(f"return {result.evaluation.return_mean:.1f}, run in {result.run_dir}")
