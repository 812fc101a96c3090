# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train DQN on CartPole
#
# This notebook trains a Q-network until the pole stays up. Then it shows what the network has
# learned: the learning curve, the action values over the state space, 100 evaluation episodes, and
# one episode step by step. It runs from top to bottom without changes.

# %%
# %matplotlib inline
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # hides TensorFlow's own messages

# %% [markdown]
# ## 1. Set up TensorFlow
#
# Call this before anything else uses TensorFlow. It prints what it did, and the reason for anything
# that it could not do. It never fails because of the machine: without a GPU, training uses the CPU.

# %%
from kytolly import configure_gpu_optimization

report = configure_gpu_optimization(
    enable_xla=True, enable_mixed_precision=False, memory_growth=True, verbose=True
)

# %%
import gymnasium
import numpy as np
from matplotlib.figure import Figure

from kytolly import (
    DQNConfig,
    Trainer,
    plot_learning_curve,
    plot_q_values,
    tuned_settings,
)

# %% [markdown]
# ## 2. Train
#
# CartPole exists as tensor code. The environment, exploration, replay buffer and learning are
# therefore one XLA program. The first call compiles it, which takes some seconds. The compiled
# program is kept on disk, so the next start is faster.
#
# An *env step* is one step of one environment.

# %% tags=["parameters"]
total_env_steps = 50_000
seed = 1

# %%
settings = tuned_settings("dqn", "CartPole-v1")  # only what differs from the defaults
settings |= {"total_env_steps": total_env_steps, "seed": seed}
result = Trainer(progress=False).train_dqn(DQNConfig(**settings), env="CartPole-v1")

# %%
print(f"run folder     {result.run_dir}")
print(f"stopped by     {result.stopped_by}")
print(f"env steps      {result.summary['env_steps']:,}")
print(f"updates        {result.summary['updates']:,}")
print(f"wall time      {result.summary['wall_seconds']:.1f} s")
print(f"compile time   {result.summary['compile_seconds']:.1f} s")
print(f"speed          {result.summary['env_steps_per_second']:,.0f} env steps/s")

# %% [markdown]
# ## 3. Learning curve
#
# Training episodes contain random actions; evaluations do not. The weights of the best evaluation
# are kept. The greedy policy of DQN can get worse again while the values are still changing, so
# the last weights may not be the best.

# %%
plot_learning_curve(result.run_dir).figure

# %% [markdown]
# ## 4. Action values
#
# Both plots show the pole's angle and angular velocity. The cart is at rest in the middle of the
# track.
#
# - **Left:** the value of the better action. A value is a discounted sum of rewards, so no true
#   value is above `1 / (1 - gamma)`. DQN takes the maximum of inexact estimates, so it tends to
#   overestimate.
# - **Right:** the value of a push to the right minus the value of a push to the left. The black
#   line is where the policy switches sides.
#
# In most states, the choice hardly matters, because the next push can correct it. In the strongly
# colored bands, the pole is about to fall, and only a push toward that side can save it. Beyond the
# bands, nothing can, and the network has seen few such states.

# %%
plot_q_values(
    result.agent.q_values,
    axes=[
        (2, "pole angle (rad)", -0.21, 0.21),
        (3, "angular velocity (rad/s)", -2.0, 2.0),
    ],
    observation=[0.0, 0.0, 0.0, 0.0],
    action_names=["left", "right"],
)

# %% [markdown]
# ## 5. Evaluate
#
# This plays 100 greedy episodes in fresh environments, with a seed that training did not use. The
# highest possible return is 500. A mean of 475 or more counts as solved.

# %%
evaluation = Trainer().evaluate(result.run_dir, episodes=100, seed=seed + 1)
print(f"return {evaluation.return_mean:.1f} ± {evaluation.return_std:.1f} (mean ± std)")
print(f"worst  {min(evaluation.returns):.0f}")

# %% [markdown]
# ## 6. Act
#
# `result.agent.act` takes one observation and returns one action, or takes a batch and returns one
# action each. Here it balances Gymnasium's own CartPole, in which it was not trained.

# %%
env = gymnasium.make("CartPole-v1")
observation, _ = env.reset(seed=seed)
observations, ended = [observation], False
while not ended:
    observation, reward, terminated, truncated, _ = env.step(result.agent.act(observation))
    observations.append(observation)
    ended = terminated or truncated
env.close()
print(f"the episode lasted {len(observations) - 1} steps")

# %%
position, _, angle, _ = np.transpose(observations)
figure = Figure(figsize=(10, 3), layout="constrained")
for ax, values, label in zip(
    figure.subplots(1, 2), (position, angle), ("cart position (m)", "pole angle (rad)"), strict=True
):
    ax.plot(values)
    ax.set_xlabel("step")
    ax.set_ylabel(label)
    ax.grid(alpha=0.3)
figure

# %% [markdown]
# ## 7. Look closer
#
# The run folder holds everything: `metrics.csv`, `result.json`, `config.yaml`, `checkpoints/`,
# `best.keras`, and the files for TensorBoard. To start TensorBoard, run this in a terminal, in the
# folder of this notebook:
#
#     tensorboard --logdir runs
#
# Then open the address that it prints. To see it in the notebook instead, run these two lines in a
# new cell. Your browser must be able to reach this machine:
#
#     %load_ext tensorboard
#     %tensorboard --logdir runs
#
# To play the best weights again later, run `kytolly evaluate runs/NAME`.
