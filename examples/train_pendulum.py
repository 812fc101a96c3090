"""Train PPO on Pendulum, whose action is a real number: `python examples/train_pendulum.py`."""

from kytolly import PPOConfig
from kytolly.config.tuned import tuned_settings
from kytolly.machine.configure import configure_gpu_optimization
from kytolly.trainer import Trainer

configure_gpu_optimization()
settings = {**tuned_settings("ppo", "Pendulum-v1"), "seed": 1}
result = Trainer().train_ppo(PPOConfig(**settings), env="Pendulum-v1")
print(f"return {result.evaluation.return_mean:.1f}, run in {result.run_dir}")
