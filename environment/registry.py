"""The environments that exist as tensor code, by name; each is imported when it is asked for."""

from __future__ import annotations

import importlib

from kytolly.environment.spec import TensorEnvironment

TENSOR_ENVIRONMENTS = {  # name: module of this room, class
    "CartPole-v1": "tensor.cartpole:CartPole",
    "Acrobot-v1": "tensor.acrobot:Acrobot",
    "MountainCar-v0": "tensor.mountain_car:MountainCar",
    "MountainCarContinuous-v0": "tensor.mountain_car_continuous:MountainCarContinuous",
    "Pendulum-v1": "tensor.pendulum:Pendulum",
    "probe/constant-reward": "probe.q_learning:ConstantReward",
    "probe/observation-reward": "probe.q_learning:ObservationReward",
    "probe/delayed-reward": "probe.q_learning:DelayedReward",
    "probe/best-action": "probe.q_learning:BestAction",
    "probe/observation-action": "probe.q_learning:ObservationAction",
    "probe/endless-reward": "probe.q_learning:EndlessReward",
    "probe/corridor": "probe.q_learning:Corridor",
    "probe/ring": "probe.q_learning:Ring",
    "probe/masked-action": "probe.on_policy:MaskedAction",
    "probe/masked-kinds": "probe.on_policy:MaskedKinds",
    "probe/action-kinds": "probe.on_policy:ActionKinds",
    "probe/continuous-action": "probe.on_policy:ContinuousAction",
    "probe/dict-observation": "probe.on_policy:DictObservation",
}


def tensor_environment(name: str) -> TensorEnvironment | None:
    """The environment of that id in tensor code; None where it does not exist as such."""
    if name not in TENSOR_ENVIRONMENTS:
        return None
    module, _, kind = TENSOR_ENVIRONMENTS[name].partition(":")
    return getattr(importlib.import_module(f"kytolly.environment.{module}"), kind)()
