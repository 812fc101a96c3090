"""The weights of a run as those that another training begins with."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import keras
import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.agent.reward_scale import RewardScale
from kytolly.agent.rollout_buffer import RolloutBuffer
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.deployment.loaded_agent import LoadedAgent, load
from kytolly.deployment.zoo import run_path
from kytolly.environment.spec import Box
from kytolly.policy.action_values import reward_scale
from kytolly.record.checkpoint import FOLDER, checkpoints
from kytolly.record.saved_checkpoint import DAMAGE, check_files, path_without_pattern
from kytolly.record.saved_run import SavedRun

ABSENT = "absent"  # a setting that an algorithm does not have
UNIT = {"reward_scale": 1.0, "normalize_rewards": False}  # of algorithms without such a setting
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def resolve_init_run(init: str | Path | None, log_dir: Path | None, resume: bool) -> Path | None:
    """The folder of the run that `init` names, or else the one that a resumed run began with."""
    if init is None:
        saved = SavedRun.resumable(log_dir).read_config().init
        return None if saved is None else Path(saved)
    if resume:
        raise ValueError(
            f"init is {str(init)!r} and resume is true, expected one of them: a resumed run goes "
            "on with its own weights. Leave one out."
        )
    return run_path(init).absolute()


def load_initial_weights(agent: KytollyAgent, run: Path) -> None:
    """Give an agent that has not trained the best weights of a run, statistics included.

    Args:
        agent: Gets the weights.
        run: The run's folder.

    Raises:
        ValueError: The run's environment or network is another one.
    """
    loaded = load(run)
    check_same_memory(loaded, agent.cfg)
    check_same_spec(loaded, agent)
    check_same_units(loaded, agent.cfg)
    for fact in (weight_shapes, activations):
        given, expected = fact(loaded.network), fact(agent.policy.network)
        if given != expected:
            name = fact.__name__.replace("_", " ")
            raise ValueError(
                f"init is {path_text(run)}, whose network has the {name} {given}, expected those "
                f"of this config's network: {expected}. Give the settings of that run, such as "
                "hidden_units or layer_norm, or leave init out."
            )
    agent.policy.begin_with(loaded.network.get_weights())
    memory = agent.memory
    if isinstance(memory, RolloutBuffer) and memory.reward_scale is not None:
        take_reward_scale(memory.reward_scale, loaded.path)
    elif isinstance(memory, ReplayBuffer) and memory.return_scale is not None:
        memory.return_scale.begin_at(float(reward_scale(loaded.cfg, loaded.network)))


def check_same_memory(loaded: LoadedAgent, cfg: RunConfig) -> None:
    """ValueError where the run's agent remembers otherwise than the config's."""
    given, expected = memory_text(loaded.cfg), memory_text(cfg)
    if given != expected:
        raise ValueError(
            f"init is {path_text(loaded.path)}, which learned with {given}, expected {expected}: "
            f"its weights are of another memory. Set {given}, or leave init out."
        )


def memory_text(cfg: RunConfig) -> str:
    """The settings of a memory that decide what it takes and gives."""
    if cfg.memory is None:
        return "memory none"
    inputs = setting_text(cfg.memory_inputs)
    return f"memory {cfg.memory}, memory_units {cfg.memory_units}, memory_inputs {inputs}"


def check_same_spec(loaded: LoadedAgent, agent: KytollyAgent) -> None:
    """ValueError where observations or actions are not those of the agent's environment."""
    spec = agent.env_spec
    for what, field in {"observations": "obs", "actions": "action"}.items():
        given, expected = getattr(loaded.env_spec, field), getattr(spec, field)
        if given != expected:
            raise ValueError(
                f"init is {path_text(loaded.path)}, trained on {loaded.env_name} with {what} "
                f"{given}, expected those of {spec.name}: {expected}. Take a run of an environment "
                "with the same spaces, or leave init out."
            )


def check_same_units(loaded: LoadedAgent, cfg: RunConfig) -> None:
    """ValueError where a setting gives the run's values another unit than the config's."""
    names = (getattr(each, "units_of_weights", ()) for each in (loaded.cfg, cfg))
    for name in dict.fromkeys(("normalize_observations", *itertools.chain(*names))):
        if name == "action_bounds" and not isinstance(loaded.env_spec.action, Box):
            continue
        unit = UNIT.get(name, ABSENT)
        given, expected = (getattr(each, name, unit) for each in (loaded.cfg, cfg))
        if given != expected and ABSENT not in (given, expected):
            was, now = setting_text(given), setting_text(expected)
            raise ValueError(
                f"init is {path_text(loaded.path)}, which learned with {name} {was}, expected "
                f"{now}: its values would mean something else. Set {name} to {was}, or leave init "
                "out."
            )


def setting_text(value: float | bool | str | None) -> str:
    """A setting as YAML writes it."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def take_reward_scale(scale: RewardScale, run: Path) -> None:
    """Go on with the statistics by which a run divided its rewards, as its newest checkpoint has.

    Warns where the run has no checkpoint: its values are then in a unit that nothing tells.
    """
    for _, path in checkpoints(run / FOLDER):
        try:
            check_files(path)
            with path_without_pattern(Path(path).parent) as folder:
                reader = tf.train.load_checkpoint(str(folder / Path(path).name))
                for name in ("mean", "variance", "count"):
                    saved = reader.get_tensor(f"agent/memory/reward_scale/{name}/{VALUE}")
                    getattr(scale, name).assign(saved)
            return
        except (*DAMAGE, ValueError):
            continue
    warnings.warn(
        f"{path_text(run)} learned with normalize_rewards and has no readable checkpoint, which "
        "would say by what its rewards were divided: values are off at first, until the rewards "
        "of this run show it.",
        stacklevel=2,
    )


def weight_shapes(network: keras.Model) -> list[tuple[int, ...]]:
    """Shape of every weight in turn."""
    return [tuple(weight.shape) for weight in network.weights]


def activations(network: keras.Model) -> list[str]:
    """Activation of every layer that has one, in turn."""
    functions = (getattr(layer, "activation", None) for layer in network._flatten_layers())
    return [getattr(each, "__name__", str(each)) for each in functions if callable(each)]
