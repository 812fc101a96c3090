"""Environments in Ray actors, on this machine or on others, for the host loop.

An actor holds some of the environments and a `Collector`, and acts in NumPy. For each block the
learner sends it the weights and the state of the random stream, and gets the block's rows: no
message is sent within a block. Rows are in the order of the environments, and which weights
collect which block is the loop's own affair, so a run is that of one process: it depends neither
on the machines' speed nor on the number of actors.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import math
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import keras
import numpy as np

from kytolly.agent.acting import HostActor, ObsSpec
from kytolly.agent.acting_rows import among_all
from kytolly.agent.exploration import Exploration
from kytolly.agent.noisy_greedy import HostNoise, NoisyGreedy
from kytolly.agent.randomness import RESUMED_EPISODES, stream_seed
from kytolly.config.run import RunConfig
from kytolly.environment.faults import EnvironmentFault, one_line
from kytolly.environment.gym.adapter import make_host_groups
from kytolly.environment.gym.remembering import remembering
from kytolly.environment.gym.restarts import MAX_IN_A_ROW, Restarts
from kytolly.environment.gym.saved_state import NotSavable, restore_state, saved_state
from kytolly.environment.gym.step import GymSource, environment_seeds
from kytolly.environment.spec import EnvSpec
from kytolly.loop.collector import Behavior, Collector, EpisodeEnds
from kytolly.loop.limits import OutOfTime
from kytolly.policy.base import ActionReader
from kytolly.policy.batch import Rollout, present, with_present

STORED_BYTES = 80_000  # of weights or rows; what is less travels with the call, as one text
AFTER_DEATHS = 2**32  # numbers of `stream_seed` from here on are of actors that were made anew


class Share(NamedTuple):
    """The environments of an actor among all."""

    first: int
    count: int
    total: int

    @property
    def envs(self) -> slice:
        """Their places."""
        return slice(self.first, self.first + self.count)


class Order(NamedTuple):
    """What an actor collects by.

    Attributes:
        weights: The network's, end to end.
        state: The exploration's.
        rng: What the noise of all environments is drawn from.
    """

    weights: np.ndarray
    state: np.ndarray
    rng: np.random.Generator


class Block(NamedTuple):
    """What an actor has collected: rows [T, E, ...], its episodes, and what failed."""

    rollout: Rollout
    episodes: np.ndarray
    cut: np.ndarray
    restarts: int


class Pending(NamedTuple):
    """A block that is collected: what was sent, and each actor with a reference to its block."""

    order: object
    calls: list[tuple[Any, Any]]


class SharedExploration:
    """An exploration of all environments, of which some are here."""

    def __init__(self, whole: Exploration, share: Share):
        self.share, self.gives_explored = share, whole.gives_explored
        self.host_action, self._whole = whole.host_action, whole
        if whole.gives_explored:
            self.explored = whole.explored

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> Sequence[Any]:
        """The noise of these environments: that of all of them is drawn."""
        noise = self._whole.host_noise(rng, (shape[0], self.share.total), state)
        return [self._share_of(step) for step in noise]

    def _share_of(self, noise: Any) -> Any:
        if isinstance(noise, tuple):
            return tuple(map(self._share_of, noise))
        if isinstance(noise, HostNoise):
            return noise.of_rows(self.share.envs, self.share.total)
        return noise[self.share.envs]


@dataclasses.dataclass(frozen=True)
class Player:
    """What an actor needs of the agent; Ray sends it once."""

    network: keras.Model
    distribution: ActionReader
    exploration: Exploration
    obs_spec: ObsSpec
    allows_lag: bool
    steps: int


class EnvActor:
    """Some of the environments and their collector, in a process of Ray."""

    def make(self, source: bytes, cfg: RunConfig, masks: bool, share: Share) -> EnvSpec:
        """Make the environments; returns what they are."""
        self.share = share
        made = make_host_groups(
            cloudpickle.loads(source)(),
            share.count,
            1,
            seed=cfg.seed,
            first=share.first,
            async_envs=cfg.async_envs,
            threads=cfg.env_threads,
            masks=masks,
            timeout_seconds=cfg.env_timeout_seconds,
            restart=cfg.on_env_fault == "restart",
        )[0]
        self.env = remembering(made, cfg.state_units, cfg.memory_inputs)
        return self.env.spec

    def begin(self, sent: bytes, seed: int | None) -> None:
        """Begin the first episodes; of an actor that was made anew, others by a `seed`."""
        player: Player = cloudpickle.loads(sent)
        actor = HostActor(player.network, player.distribution, player.obs_spec)
        network = actor.numpy_network
        if network is not None:
            network.use_one_thread()
            if not isinstance(player.exploration, NoisyGreedy):  # which has a product for each row
                actor.numpy_network = among_all(network, self.share.envs, self.share.total)
        exploration: Any = SharedExploration(player.exploration, self.share)
        behavior = Behavior(
            exploration, player.distribution, player.allows_lag, lambda terminated: terminated
        )
        self.actor = actor
        self.collector = Collector(
            behavior, actor, self.env, np.random.default_rng(0), player.steps
        )
        if seed is not None:
            self.collector.begin_episodes(seed)

    def collect(self, sent: Order | bytes) -> Block | bytes:
        """A block of rows, by the weights of the order. `discount` says what terminated."""
        order: Order = unpacked(sent)
        self.actor.take(order.weights)
        self.collector.rng = order.rng
        self.collector.begin_rollout(order.state)
        self.collector.take_steps()
        restarts = self.env.restarts
        block = Block(
            self.collector.rollout(),
            self.collector.take_episodes(),
            self.collector.take_cut(),
            0 if restarts is None else restarts.total,
        )
        return packed(block, sum(column.nbytes for column in present(block.rollout)))

    def begin_episodes(self, seed: int) -> None:
        """Begin new episodes."""
        self.collector.begin_episodes(seed)

    def get_state(self) -> str:
        """The collector and its environments, as JSON text."""
        return json.dumps(saved_state(self.collector))

    def set_state(self, text: str) -> None:
        """Go on from there."""
        restore_state(self.collector, json.loads(text))

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


class ActorEnvs:
    """All environments of a run, in Ray actors: what a loop knows of a `HostEnv` that it steps not.

    Args:
        env: A Gymnasium id, or a function that makes an environment.
        cfg: Config.
        num_envs: Environments in all.
        masks: Look for action masks.

    Raises:
        ValueError: The environments do not divide among the actors, or `env` cannot be sent.
        EnvironmentFault: The environment cannot be made.
    """

    has_dummy_steps = False
    given = None

    def __init__(self, env: GymSource, cfg: RunConfig, num_envs: int, masks: bool):
        import ray

        self.ray, self.cfg, self.masks, self.num_envs = ray, cfg, masks, num_envs
        count = cfg.actors or 1
        if num_envs % count:
            raise ValueError(
                f"num_envs is {num_envs} with {count} actors, expected a multiple: each has "
                "equally many environments. Change one of them."
            )
        self._source = sendable_source(env)
        size = num_envs // count
        self.shares = [Share(first, size, num_envs) for first in range(0, num_envs, size)]
        self.actors: list[Any] = [None] * count
        made = [self._make(index) for index in range(count)]
        self.spec: EnvSpec = self.answers(made)[0]
        self.restarts = Restarts(self.spec.name, environment_seeds(cfg.seed, num_envs))
        self._deaths = [0] * count  # in a row, without a block in between
        self._inner = [0] * count  # restarts that an actor has counted itself

    def begin(self, player: bytes) -> None:
        """Begin the first episodes of all."""
        self._player = self.ray.put(player)
        self.answers([actor.begin.remote(self._player, None) for actor in self.actors])

    def collect(self, order: Order) -> Pending:
        """Let every actor collect a block; returns what `blocks` takes."""
        sent = packed(order, order.weights.nbytes)
        if isinstance(sent, Order):  # Ray's store pays for what is large and is sent to several
            sent = self.ray.put(sent)
        return Pending(sent, [(actor, actor.collect.remote(sent)) for actor in self.actors])

    def blocks(self, pending: Pending) -> list[Block]:
        """The blocks of all actors, in order; one that is dead is made anew and collects again.

        Its environments begin new episodes: the last rows before count as cut.
        """
        from ray.exceptions import RayActorError

        with contextlib.suppress(RayActorError):  # all at once, where all are alive
            answers = self.answers([answer for _, answer in pending.calls])
            return [self._counted(index, unpacked(sent)) for index, sent in enumerate(answers)]
        blocks = []
        for index, (actor, answer) in enumerate(pending.calls):
            cut = False
            while True:
                try:
                    block: Block = unpacked(self.answers([answer])[0])
                    break
                except RayActorError as error:
                    if actor is self.actors[index]:  # else the block before has replaced it
                        self._replace(index, error)
                        cut = True
                    actor = self.actors[index]
                    answer = actor.collect.remote(pending.order)
            blocks.append(self._counted(index, block._replace(cut=block.cut | cut)))
        return blocks

    def _counted(self, index: int, block: Block) -> Block:
        """The block of an actor, of which the restarts are counted."""
        self._deaths[index] = 0
        self.restarts.total += block.restarts - self._inner[index]
        self._inner[index] = block.restarts
        return block

    def answers(self, references: Sequence[Any]) -> list[Any]:
        """What the actors return; raises what an environment raised there."""
        from ray.exceptions import RayTaskError

        try:
            return self.ray.get(list(references))
        except RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise

    def ask_all(self, method: str, *arguments: Sequence[Any]) -> list[Any]:
        """Call a method of every actor, each with its own arguments."""
        rows = zip(*arguments, strict=True) if arguments else [()] * len(self.actors)
        calls = [
            getattr(actor, method).remote(*row)
            for actor, row in zip(self.actors, rows, strict=True)
        ]
        return self.answers(calls)

    def close(self) -> None:
        """Close the environments, and end their actors."""
        closing = [actor.close.remote() for actor in self.actors]
        self.ray.wait(closing, num_returns=len(closing), timeout=10.0)
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []

    def _make(self, index: int) -> Any:
        """Make an actor; returns a reference to the specification of its environments."""
        self.actors[index] = self.ray.remote(EnvActor).options(num_cpus=1, max_restarts=0).remote()
        return self.actors[index].make.remote(
            self._source, self.cfg, self.masks, self.shares[index]
        )

    def _replace(self, index: int, error: Exception) -> None:
        self._deaths[index] += 1
        if self._deaths[index] > MAX_IN_A_ROW:
            raise EnvironmentFault(
                f"{self.spec.name}: actor {index} of {len(self.actors)} died {MAX_IN_A_ROW + 1} "
                f"times without a block in between ({one_line(str(error), 300)}). Look at its "
                "machine, and resume the run."
            )
        share = self.shares[index]
        self.restarts.counts[share.envs] += 1
        self.restarts.total += share.count
        self._inner[index] = 0
        number = AFTER_DEATHS + int(self.restarts.counts[share.first]) * share.total + share.first
        seed = stream_seed(self.cfg.seed, RESUMED_EPISODES, number)
        self.answers([self._make(index)])
        self.answers([self.actors[index].begin.remote(self._player, seed)])


class ActorCollector(EpisodeEnds):
    """Collects by actors what a `Collector` collects here.

    Several rollouts may have begun: each was ordered with its weights and its noise, and they come
    in that order.
    """

    collects_elsewhere = True

    def __init__(
        self,
        behavior: Behavior,
        actor: HostActor,
        env: ActorEnvs,
        rng: np.random.Generator,
        steps: int,
    ):
        if actor.numpy_network is None:
            raise ValueError(
                "actors act in NumPy, which cannot compute this network, expected layers that it "
                "has. Use a network of such layers, or leave actors out."
            )
        super().__init__(env.num_envs)
        self.behavior, self.actor, self.env, self.rng, self.steps = behavior, actor, env, rng, steps
        self.deadline = math.inf
        self._pending: collections.deque[Pending] = collections.deque()
        self._network = actor.numpy_network
        player = Player(
            actor.network,
            behavior.distribution,
            behavior.exploration,
            actor.obs_spec,
            behavior.allows_lag,
            steps,
        )
        env.begin(cloudpickle.dumps(player))

    def begin_episodes(self, seed: int) -> None:
        """Begin a new episode in every environment."""
        self._pending.clear()
        seeds = [stream_seed(seed, RESUMED_EPISODES, share.first) for share in self.env.shares]
        self.env.ask_all("begin_episodes", seeds)

    def begin_rollout(self, state: np.ndarray) -> None:
        """Let the actors begin."""
        if time.perf_counter() > self.deadline:
            raise OutOfTime
        weights = np.concatenate([np.ravel(weight) for weight in self._network.weights])
        # What is sent is a copy, from which the actors draw.
        self._pending.append(self.env.collect(Order(weights, state, self.rng)))
        self.behavior.exploration.host_noise(self.rng, (self.steps, self.env.num_envs), state)

    def take_steps(self) -> None:
        """Wait for the actors."""
        self._blocks = self.env.blocks(self._pending[0])

    def rollout(self) -> Rollout:
        """The rows of the rollout, [T, E, ...] arrays."""
        blocks, first = self._blocks, self._blocks[0].rollout
        columns = zip(*(present(block.rollout) for block in blocks), strict=True)
        rollout = with_present(first, [np.concatenate(leaves, axis=1) for leaves in columns])
        self._episodes += np.sum([block.episodes for block in blocks], axis=0)
        self._cut |= np.concatenate([block.cut for block in blocks])
        self._pending.popleft()
        return rollout._replace(discount=self.behavior.discount(rollout.discount))

    def get_state(self) -> dict[str, Any]:
        """Everything between two rollouts that the next one depends on."""
        if self._pending:
            raise NotSavable("the run was stopped within a rollout")
        return {"rng": self.rng, "actors": self.env.ask_all("get_state")}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if len(state["actors"]) != len(self.env.actors):
            raise NotSavable(
                f"it was saved with {len(state['actors'])} actors, and there are "
                f"{len(self.env.actors)}"
            )
        self.env.ask_all("set_state", state["actors"])


def packed(content: Any, nbytes: int) -> Any:
    """A content with arrays of so many bytes, in the form in which Ray moves it at least cost.

    Ray's own pickling costs more than moving a little; of much it moves the arrays without a copy.
    """
    return content if nbytes > STORED_BYTES else pickle.dumps(content, pickle.HIGHEST_PROTOCOL)


def unpacked(sent: Any) -> Any:
    """The content that was packed."""
    return pickle.loads(sent) if isinstance(sent, bytes) else sent


def sendable_source(env: GymSource) -> bytes:
    """What an actor makes the environment by: a function that returns an id or a function."""
    if isinstance(env, str):
        from kytolly.environment.gym.make import registered_spec

        spec = registered_spec(env)

        def source() -> str:
            import gymnasium

            gymnasium.registry.setdefault(spec.id, spec)  # an id of the user's own program
            return env

        return cloudpickle.dumps(source)
    if not callable(env):
        raise ValueError(
            f"actors need to make {type(env).__name__} on other machines, where an "
            "environment that exists cannot move. Give a function, as in env=lambda: MyEnv()."
        )
    make: Callable[[], object] = env
    try:
        return cloudpickle.dumps(lambda: make)
    except Exception as error:
        raise ValueError(
            f"the function given as env cannot be sent to actors ({one_line(str(error))}), "
            "expected one whose variables can be pickled. Make them within the function."
        ) from error
