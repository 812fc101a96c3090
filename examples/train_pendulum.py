"""Train PPO on Pendulum, a task with continuous actions: `python examples/train_pendulum.py`."""

from kytolly import PPOConfig, Trainer, configure_gpu_optimization
from kytolly.config.tuned import tuned_settings

configure_gpu_optimization()
settings = {**tuned_settings("ppo", "Pendulum-v1"), "seed": 1}
result = Trainer().train_ppo(PPOConfig(**settings), env="Pendulum-v1")
print(f"return {result.evaluation.return_mean:.1f}, run in {result.run_dir}")
