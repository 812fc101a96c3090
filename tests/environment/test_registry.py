"""Environments in tensor code by name, and what a run loads of this room."""

from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from tests.test_imports import FILES, imported_modules

MINATAR = "Asterix Breakout Freeway Seaquest SpaceInvaders".split()
POPGYM = "PositionOnlyCartPole Autoencode CountRecall HigherLower RepeatPrevious".split()


def test_registry_makes_every_environment_under_its_name():
    games = "CartPole-v1 Acrobot-v1 MountainCar-v0 MountainCarContinuous-v0 Pendulum-v1".split()
    minatar = [f"MinAtar/{title}-v{version}" for title in MINATAR for version in (0, 1)]
    velocities = "CartPoleNoVel-v1 PendulumNoVel-v1 MountainCarContinuousNoVel-v0".split()
    mazes = "kytolly/TMaze-v0 kytolly/PassiveTMaze-v0".split()
    popgym = [
        f"popgym-{title}{level}-v0" for title in POPGYM for level in ("Easy", "Medium", "Hard")
    ]
    assert set(TENSOR_ENVIRONMENTS) == {*games, *minatar, *velocities, *mazes, *popgym}
    for name in TENSOR_ENVIRONMENTS:
        env = tensor_environment(name)
        assert env is not None and env.spec.name == name
    assert tensor_environment("LunarLander-v3") is None


def test_a_run_on_cartpole_needs_few_files_of_this_room():
    needs = {"registry", "tensor.stepping", "tensor.cartpole"}
    for _ in range(3):
        needs |= {
            name.removeprefix("environment.")
            for module in needs
            for name in imported_modules(FILES[f"environment.{module}"])
        }
    expected = {"registry", "tensor.stepping", "tensor.cartpole", "spec", "mask", "encoding"}
    assert needs == expected | {"memory"}
