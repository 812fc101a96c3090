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
# # Train PPO on Pendulum
#
# A motor too weak to lift a pendulum at once has to swing it up and then hold it upright. The
# action is a torque, a real number. This notebook trains a policy for it and looks at what was
# learnt: the learning curve, the policy and the value function over all states, 100 evaluation
# episodes, and one episode step by step. It runs from top to bottom without an edit.

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

from kytolly import PPOConfig
from kytolly.config.tuned import tuned_settings
from kytolly.record.pictures import plot_learning_curve, plot_over_states
from kytolly.trainer import Trainer

# %% [markdown]
# ## 2. Train
#
# PPO collects a *rollout*, `rollout_steps` env steps of each of `num_envs` copies of the pendulum,
# learns from it in several passes, forgets it and collects the next. Pendulum exists as tensor
# code, so all of this, the pendulums included, is one XLA program. The first call compiles it,
# which takes some seconds, and less the next time: the compiled program is kept on disk.

# %% tags=["parameters"]
total_env_steps = 100_000
seed = 1

# %%
settings = tuned_settings("ppo", "Pendulum-v1")  # where they differ from the defaults
settings |= {"total_env_steps": total_env_steps, "seed": seed}
result = Trainer(progress=False).train_ppo(PPOConfig(**settings), env="Pendulum-v1")

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
# Every step costs the squared angle from upright and a little for speed and torque, so returns are
# negative, and 0 would be a pendulum that stands from the start. Training episodes are played with
# random torques around the policy's own; evaluations take the policy's own. How much an episode
# returns depends on where it begins: the band is wide even for a perfect policy.

# %%
plot_learning_curve(result.run_dir).figure

# %% [markdown]
# ## 4. What was learnt
#
# Both pictures show all states: across, the angle (0 is upright, the two edges are both straight
# down), and upwards, how fast it turns. Left, the torque that the policy applies: dark colours are
# all that the motor has, and on the black line it changes direction. Right, the value: the
# discounted sum of the rewards still to come, as the network has learnt to predict it (with
# `normalize_rewards`, of the scaled rewards that it learns from). The bright ridge is the states
# from which the pendulum arrives upright without another swing.

# %%
torque = ("Policy", "torque (N m)", lambda obs: result.agent.act(obs)[:, 0])
value = (
    "Value function",
    "discounted return still to come",
    lambda obs: result.agent.policy.outputs(obs)[1],
)
state_space = {
    "axes": [("angle from upright (rad)", -np.pi, np.pi), ("angular velocity (rad/s)", -8.0, 8.0)],
    "observe": lambda angle, velocity: np.stack([np.cos(angle), np.sin(angle), velocity], axis=-1),
}
plot_over_states([torque, value], **state_space)

# %% [markdown]
# ## 5. Evaluate
#
# 100 episodes without random torques in fresh environments, with a seed that training did not use.

# %%
evaluation = Trainer().evaluate(result.run_dir, episodes=100, seed=seed + 1)
print(f"return {evaluation.return_mean:.1f} ± {evaluation.return_std:.1f} (mean ± std)")
print(f"worst  {min(evaluation.returns):.0f}")

# %% [markdown]
# ## 6. Act
#
# `result.agent.act` takes one observation and returns an action, or a batch and returns one for
# each. Here it drives Gymnasium's own Pendulum, which it was not trained in, from hanging at rest.

# %%
env = gymnasium.make("Pendulum-v1")
env.reset(seed=seed)
env.unwrapped.state = np.array([np.pi, 0.0])  # straight down
observation = np.array([-1.0, 0.0, 0.0], np.float32)
observations, torques, ended = [observation], [], False
while not ended:
    action = result.agent.act(observation)
    observation, reward, terminated, truncated, _ = env.step(action)
    observations.append(observation)
    torques.append(action[0])
    ended = terminated or truncated
env.close()

# %%
cosine, sine, velocity = np.transpose(observations)
angle = np.arctan2(sine, cosine)
turned = np.unwrap(angle)
seconds = 0.05 * np.arange(len(observations))
figure = Figure(figsize=(10, 3), layout="constrained")
angle_ax, torque_ax = figure.subplots(1, 2)
angle_ax.plot(seconds, turned)
upright = 2 * np.pi * np.round(turned[-1] / (2 * np.pi))  # 0, or a full turn away
angle_ax.axhline(upright, color="0.6", ls="--", label="upright")
angle_ax.legend(frameon=False)
angle_ax.set_ylabel("angle (rad)")
torque_ax.step(seconds[:-1], torques, where="post")
torque_ax.set_ylabel("torque (N m)")
for ax in (angle_ax, torque_ax):
    ax.set_xlabel("time (s)")
    ax.grid(alpha=0.3)
figure

# %% [markdown]
# The same episode as a path through the pictures from above, beginning at the dot: it gathers
# speed to and fro until the ridge is in reach, then follows it to the top.

# %%
plot_over_states([torque, value], **state_space, path=np.stack([angle, velocity], axis=-1))

# %% [markdown]
# ## 7. Look closer
#
# Everything that was measured is in the run's folder: `metrics.csv`, `result.json`, `config.yaml`,
# `checkpoints/`, `best.keras`, and the files that TensorBoard reads. In a terminal, from this
# folder:
#
#     tensorboard --logdir runs
#
# and open the address that it prints. For PPO look at `train/approximate_kl` and
# `train/clip_fraction`, which say how far a rollout's updates moved the policy, at
# `train/explained_variance`, which says how much of the returns the value function foresees, and
# at `train/entropy`, which falls as the torques become certain. To see it in the notebook
# instead, run these two lines in a cell of their own, where a browser can reach this machine:
#
#     %load_ext tensorboard
#     %tensorboard --logdir runs
#
# ## 8. Use it later
#
# To play the run's best weights again: `kytolly evaluate runs/NAME`, or
# `Trainer().evaluate("runs/NAME")`. To train it further: `kytolly train ppo --resume runs/NAME
# --total-env-steps 200000`. `best.keras` is a Keras model from observations to the mean and the
# log standard deviation of the torque, and the value.

# %%
import keras

network = keras.models.load_model(result.run_dir / "best.keras")
params, value_of_hanging = network(np.array([[-1.0, 0.0, 0.0]], np.float32))
mean, log_std = np.asarray(params)[0]
print(f"hanging at rest: torque {mean:.2f} ± {np.exp(log_std):.2f} N m before clipping")
print(f"                 value {float(value_of_hanging[0]):.1f}")
