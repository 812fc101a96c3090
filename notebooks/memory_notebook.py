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
# # A maze with and without memory
#
# A sign at the entrance of a corridor says whether the goal is north or south of its other end.
# The sign is seen at the first step only; on the way all fields look alike. Whoever forgets the
# sign turns the wrong way every second time. This notebook trains PPO twice on this T-maze, with a
# memory and without one, and shows how they differ: the learning curves, what the memory holds on
# the way, and what happens if it is taken away. It runs from top to bottom without changes.

# %%
# %matplotlib inline
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # hides TensorFlow's own messages

# %%
import numpy as np
from matplotlib.figure import Figure

from kytolly import PPOConfig, Trainer, configure_gpu_optimization, plot_learning_curve

report = configure_gpu_optimization()

# %% [markdown]
# ## 1. The maze
#
# `kytolly/TMaze-v0` exists as tensor code, so training is one XLA program, maze included. An
# observation has three numbers: 011 or 110 at the entrance, which is the sign, 101 on the way, and
# 010 at the junction. The actions are east, north, west and south. The turn to the goal pays 4, the
# other one -0.1, and both end the episode. A step against a wall costs 0.1. The best return is 4.
# The best return without a memory is 1.95, the mean of 4 and -0.1.

# %% tags=["parameters"]
length = 20  # fields from the entrance to the junction
total_env_steps = 60_000
seed = 1

# %% [markdown]
# ## 2. Train with and without a memory
#
# `memory="gru"` puts a GRU of 64 units between the two hidden layers of the network. Its state
# goes from step to step and becomes zero where an episode begins. A rollout is 64 steps of each of
# 16 mazes. An update goes back through all steps of the mazes that it learns from. Everything else
# is the same for both.

# %%
shared = {
    "total_env_steps": total_env_steps,
    "num_envs": 16,
    "rollout_steps": 64,
    "env_kwargs": {"length": length},
    "seed": seed,
}


def train(memory):
    return Trainer(progress=False).train_ppo(
        PPOConfig(memory=memory, **shared), env="kytolly/TMaze-v0"
    )


# %%
with_memory = train("gru")

# %%
without_memory = train(None)

# %%
for name, result in [("with a memory", with_memory), ("without", without_memory)]:
    evaluation = Trainer().evaluate(result.run_dir, episodes=200, seed=seed + 1)
    print(f"{name:14} return {evaluation.return_mean:5.2f}  {result.run_dir}")

# %% [markdown]
# ## 3. Learning curves
#
# Both learn to walk to the junction. Only one learns where to turn.

# %%
plot_learning_curve(with_memory.run_dir).figure

# %%
plot_learning_curve(without_memory.run_dir).figure

# %% [markdown]
# ## 4. Act with a state
#
# An agent with a memory has its state from you, and gives you the next one: first
# `agent.initial_state()`, then `action, state = agent.act(obs, state=state)`. Here two mazes are
# walked at the same time, one with each sign. This is a batch of two observations and two rows of
# state.

# %%
EAST, NORTH, WEST, SOUTH = range(4)
signs = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], np.float32)  # the goal is north; it is south
way = np.tile(np.array([1.0, 0.0, 1.0], np.float32), (2, 1))
junction = np.tile(np.array([0.0, 1.0, 0.0], np.float32), (2, 1))
walk = [signs, *[way] * (length - 1), junction]
names = {EAST: "east", NORTH: "north", WEST: "west", SOUTH: "south"}


def turns(agent, forget_at=None):
    """The turns at the junction, and the memory [T, 2, S] after each step of the walk."""
    state, memories = agent.initial_state(2), []
    for step, obs in enumerate(walk):
        action, state = agent.act(obs, state=state, first=step == forget_at)
        memories.append(state["agent_memory"])
    return action, np.stack(memories)


action, memories = turns(with_memory.agent)
print(f"sign north: turns {names[action[0]]}; sign south: turns {names[action[1]]}")

# %% [markdown]
# ## 5. What the memory holds
#
# From the second step on, both walks show the same observations. The memories stay apart all the
# same. On the left are the units that differ most at the end, in both walks; on the right the
# distance between the two memories.

# %%
difference = memories[:, 0] - memories[:, 1]  # [T, S]
units = np.argsort(-np.abs(difference[-1]))[:4]
figure = Figure(figsize=(10, 3), layout="constrained")
unit_ax, distance_ax = figure.subplots(1, 2)
for color, unit in enumerate(units):
    unit_ax.plot(memories[:, 0, unit], color=f"C{color}", label=f"unit {unit}")
    unit_ax.plot(memories[:, 1, unit], color=f"C{color}", ls="--")
unit_ax.set_ylabel("memory (solid: north, dashed: south)")
unit_ax.legend(
    frameon=False,
    fontsize="small",
    ncols=4,
    columnspacing=1,
    loc="lower left",
    bbox_to_anchor=(0, 1),
)
distance_ax.plot(np.linalg.norm(difference, axis=-1))
distance_ax.set_ylim(bottom=0)
distance_ax.set_ylabel("distance of the memories")
for ax in (unit_ax, distance_ax):
    ax.set_xlabel("step")
    ax.grid(alpha=0.3)
figure

# %% [markdown]
# ## 6. Take the memory away
#
# With `first=True` an episode begins for the agent: nothing before counts. If this happens halfway,
# the sign is lost, and both walks end with the same turn.

# %%
action, _ = turns(with_memory.agent, forget_at=length // 2)
print(f"sign north: turns {names[action[0]]}; sign south: turns {names[action[1]]}")

# %% [markdown]
# ## 7. Go on
#
# - Longer corridors take more env steps: the agent has to come to the junction by chance before it
#   learns anything. In `kytolly/PassiveTMaze-v0` each step that is not on the way costs, so that
#   memory alone is hard.
# - `memory="lstm"` and `memory="lru"` remember by other rules.
# - The page `docs/memory.md` has the settings, how sequences are learned from, DQN's replay of
#   sequences, exports with the state, and models of your own.
