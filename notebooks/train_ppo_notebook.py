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
# A motor must swing up a pendulum and hold it upright, but is too weak to lift it directly. The
# action is a torque, which is continuous. This notebook trains a policy with PPO. Then it shows
# what the policy has learned: the learning curve, the policy and the value function over all
# states, 100 evaluation episodes, and one episode step by step. It runs from top to bottom without
# changes.

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
    PPOConfig,
    Trainer,
    plot_learning_curve,
    plot_over_states,
    tuned_settings,
)

# %% [markdown]
# ## 2. Train
#
# PPO repeats three steps. It collects a *rollout*: `rollout_steps` steps in each of `num_envs`
# environments. It learns from the rollout in several passes. Then it forgets the rollout.
#
# Pendulum exists as tensor code, so all of this is one XLA program, environments included. The
# first call compiles it, which takes some seconds. The compiled program is kept on disk, so the
# next start is faster.

# %% tags=["parameters"]
total_env_steps = 100_000
seed = 1

# %%
settings = tuned_settings("ppo", "Pendulum-v1")  # only what differs from the defaults
settings |= {"total_env_steps": total_env_steps, "seed": seed}
result = Trainer(progress=False).train_ppo(PPOConfig(**settings), env="Pendulum-v1")

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
# Each step costs the squared angle from upright, and a little for speed and torque. Returns are
# therefore negative, and 0 means that the pendulum is upright from start to end. Training episodes
# add noise to the torque; evaluations do not. The return of an episode depends on its initial
# state, so the band is wide even for a perfect policy.

# %%
plot_learning_curve(result.run_dir).figure

# %% [markdown]
# ## 4. Policy and value function
#
# Both plots show all states. The horizontal axis is the angle: 0 is upright, and both edges are
# straight down. The vertical axis is the angular velocity.
#
# - **Left:** the torque that the policy applies. Dark colors are the full torque of the motor. On
#   the black line, the torque changes direction.
# - **Right:** the value, which predicts the discounted sum of future rewards. With
#   `normalize_rewards`, these are the scaled rewards. From the states on the bright ridge, the
#   pendulum reaches the top without another swing.

# %%
torque = ("Policy", "torque (N m)", lambda obs: result.agent.act(obs)[:, 0])
value = (
    "Value function",
    "discounted future return",
    lambda obs: result.agent.policy.network(obs)[1],
)
state_space = {
    "axes": [("angle from upright (rad)", -np.pi, np.pi), ("angular velocity (rad/s)", -8.0, 8.0)],
    "observe": lambda angle, velocity: np.stack([np.cos(angle), np.sin(angle), velocity], axis=-1),
}
plot_over_states([torque, value], **state_space)

# %% [markdown]
# ## 5. Evaluate
#
# This plays 100 episodes without noise in fresh environments, with a seed that training did not
# use.

# %%
evaluation = Trainer().evaluate(result.run_dir, episodes=100, seed=seed + 1)
print(f"return {evaluation.return_mean:.1f} ± {evaluation.return_std:.1f} (mean ± std)")
print(f"worst  {min(evaluation.returns):.0f}")

# %% [markdown]
# ## 6. Act
#
# `result.agent.act` takes one observation and returns one action, or takes a batch and returns one
# action each. Here it controls Gymnasium's own Pendulum, in which it was not trained. The pendulum
# starts at rest, straight down.

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
# The same episode is a path through the plots above, which starts at the dot. The pendulum swings
# back and forth until it reaches the ridge, and then follows the ridge to the top.

# %%
plot_over_states([torque, value], **state_space, path=np.stack([angle, velocity], axis=-1))

# %% [markdown]
# ## 7. Look closer
#
# The run folder holds everything: `metrics.csv`, `result.json`, `config.yaml`, `checkpoints/`,
# `best.keras`, and the files for TensorBoard. To start TensorBoard, run this in a terminal, in the
# folder of this notebook:
#
#     tensorboard --logdir runs
#
# Then open the address that it prints. For PPO, look at these metrics:
#
# - `train/approximate_kl` and `train/clip_fraction`: how far an iteration moved the policy
# - `train/explained_variance`: how well the value function predicts returns
# - `train/entropy`: how random the policy is; it falls during training
#
# To see TensorBoard in the notebook instead, run these two lines in a new cell. Your browser must
# be able to reach this machine:
#
#     %load_ext tensorboard
#     %tensorboard --logdir runs
#
# ## 8. Use it later
#
# - To play the best weights again, run `kytolly evaluate runs/NAME`, or
#   `Trainer().evaluate("runs/NAME")` in Python.
# - To train further, run `kytolly train ppo --resume runs/NAME --total-env-steps 200000`.
# - `best.keras` is a Keras model. It maps observations to the mean and log standard deviation of
#   the torque, and to the value.

# %%
import keras

network = keras.models.load_model(result.run_dir / "best.keras")
params, value_of_hanging = network(np.array([[-1.0, 0.0, 0.0]], np.float32))
mean, log_std = np.asarray(params)[0]
print(f"hanging at rest: torque {mean:.2f} ± {np.exp(log_std):.2f} N m before clipping")
print(f"                 value {float(value_of_hanging[0]):.1f}")
