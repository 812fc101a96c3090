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
# This notebook sets up TensorFlow, trains a Q-network until the pole stays up, and looks at what
# was learnt: the learning curve, the action values over the state space, 100 evaluation episodes,
# and one episode step by step. It runs from top to bottom without an edit.

# %%
# %matplotlib inline
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's own chatter stays away
sys.path.insert(0, str(Path.cwd().parent))  # the repository's root, where it is not installed

# %% [markdown]
# ## 1. Set up TensorFlow
#
# Call this before anything else touches TensorFlow. It prints what it did, and why not where it
# could not. It never fails because of the machine; without a GPU, training runs on the CPU.

# %%
from kytolly.machine.configure import configure_gpu_optimization

report = configure_gpu_optimization(
    enable_xla=True, enable_mixed_precision=False, memory_growth=True, verbose=True
)

# %%
import gymnasium
import numpy as np
from matplotlib.figure import Figure

from kytolly import DQNConfig
from kytolly.config.tuned import tuned_settings
from kytolly.record.pictures import plot_learning_curve, plot_q_values
from kytolly.trainer import Trainer

# %% [markdown]
# ## 2. Train
#
# An *env step* is one step of one copy of the environment. CartPole exists as tensor code, so the
# environment, exploration, the replay buffer and learning are one XLA program. The first call
# compiles it, which takes some seconds, and less the next time: the compiled program is kept on
# disk.

# %% tags=["parameters"]
total_env_steps = 50_000
seed = 1

# %%
settings = tuned_settings("dqn", "CartPole-v1")  # where they differ from the defaults
settings |= {"total_env_steps": total_env_steps, "seed": seed}
result = Trainer(progress=False).train_dqn(DQNConfig(**settings), env="CartPole-v1")

# %%
print(f"run folder     {result.run_dir}")
print(f"stopped by     {result.stopped_by}")
print(f"env steps      {result.summary['env_steps']:,}")
print(f"updates        {result.summary['updates']:,}")
print(f"wall time      {result.summary['wall_seconds']:.1f} s")
print(f"of it to begin {result.summary['compile_seconds']:.1f} s")
print(f"speed          {result.summary['env_steps_per_second']:,.0f} env steps/s")

# %% [markdown]
# ## 3. Learning curve
#
# Training episodes contain random actions; evaluations do not. The best evaluation's weights are
# kept. DQN's greedy policy may get worse again while its values are still being learnt, which is
# why the last weights need not be the best ones.

# %%
plot_learning_curve(result.run_dir).figure

# %% [markdown]
# ## 4. What the network believes
#
# Both pictures vary the pole's angle and angular velocity; the cart stands still in the middle of
# the track. Left: the value of the better action. It is a discounted sum of rewards, so no true
# value exceeds `1 / (1 - gamma)`; DQN takes the maximum of estimates that are not exact, and tends
# to believe in more. Right: by how much a push to the right is better than one to the left; the
# black line is where the policy changes its mind. In most states the choice hardly matters, because
# the next push can make up for it. In the strongly coloured bands the pole is about to be lost, and
# only a push to the side that it falls to can save it. Beyond the bands nothing can, and the
# network has seen few such states.

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
# 100 greedy episodes in fresh environments, with a seed that training did not use. 500 is the most
# that an episode can return; a mean of 475 or more counts as solved.

# %%
evaluation = Trainer().evaluate(result.run_dir, episodes=100, seed=seed + 1)
print(f"return {evaluation.return_mean:.1f} ± {evaluation.return_std:.1f} (mean ± std)")
print(f"worst  {min(evaluation.returns):.0f}")

# %% [markdown]
# ## 6. Act
#
# `result.agent.act` takes one observation and returns an action, or a batch and returns one for
# each. Here it balances Gymnasium's own CartPole, which it was not trained in.

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
# Everything that was measured is in the run's folder: `metrics.csv`, `result.json`, `config.yaml`,
# `checkpoints/`, `best.keras`, and the files that TensorBoard reads. In a terminal, from this
# folder:
#
#     tensorboard --logdir runs
#
# and open the address that it prints. To see it in the notebook instead, run these two lines in a
# cell of their own, where a browser can reach this machine:
#
#     %load_ext tensorboard
#     %tensorboard --logdir runs
#
# To play the run's best weights again later: `kytolly evaluate runs/NAME`.
