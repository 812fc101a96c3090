"""Old checkpoints of PQN, whose network had weights that no output needed."""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import keras
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
Shape = tuple[int, ...]


@runtime_checkable
class HadDeadWeights(Protocol):
    """A network whose old files hold weights that no output needed."""

    def variables_of_old_files(self) -> Sequence[keras.Variable | Shape]:
        """The variables in the order of those files; a shape stands for a dead one."""
        ...


class OldLayout:
    """The variables of a network in an old checkpoint, and the places of those that live.

    Args:
        variables: Of the network as the checkpoint has them; a shape stands for a dead one.
        present: The same network's, without the dead ones, in today's order.
    """

    def __init__(
        self, variables: Sequence[keras.Variable | Shape], present: Sequence[keras.Variable]
    ):
        self.shapes: list[Shape] = [
            each if isinstance(each, tuple) else tuple(each.shape) for each in variables
        ]
        index_of = {id(each): index for index, each in enumerate(variables)}
        self.live = [index_of[id(each)] for each in present]
        sizes = [math.prod(shape) for shape in self.shapes]
        ends = list(itertools.accumulate(sizes))
        self.size = sum(sizes)
        self.numbers = [np.arange(ends[at] - sizes[at], ends[at]) for at in self.live]

    def living(self, vector: np.ndarray) -> np.ndarray:
        """[W] numbers of the living variables, of all variables' in one vector."""
        return vector[np.concatenate(self.numbers)]


def old_layouts(network: keras.Model | None) -> list[OldLayout]:
    """The lists of a network's variables, and of those that train, in old checkpoints."""
    if network is None or not isinstance(network, HadDeadWeights):
        return []
    variables = network.variables_of_old_files()
    if not variables:
        return []
    training = [each for each in variables if isinstance(each, tuple) or each.trainable]
    return [
        OldLayout(variables, network.variables),
        OldLayout(training, network.trainable_variables),
    ]


def living_weights(network: keras.Model, weights: list[np.ndarray]) -> list[np.ndarray]:
    """The weights of a checkpoint without dead ones, in the network's order; others as they are."""
    shapes = [tuple(weight.shape) for weight in weights]
    for layout in old_layouts(network)[:1]:
        if shapes == layout.shapes:
            return [weights[at] for at in layout.live]
    return weights


@contextlib.contextmanager
def without_dead_weights(path: str, network: keras.Model | None) -> Iterator[str]:
    """Within, the path of a checkpoint that fits a network: a copy, where dead weights are in it.

    Args:
        path: The checkpoint, without the endings of its files; it stays as it is.
        network: The network that the checkpoint will be read into.
    """
    layouts = old_layouts(network)
    reader = tf.train.load_checkpoint(path) if layouts else None
    graph = TrackableObjectGraph()
    if reader is not None:
        try:
            graph.ParseFromString(reader.get_tensor(GRAPH))
        except DecodeError as error:
            raise OSError(f"its list of objects cannot be read ({error})") from error
    dead = set().union(*(drop_dead(graph, layout, reader) for layout in layouts))
    if reader is None or not dead:
        yield path
        return
    names = sorted(set(reader.get_variable_to_shape_map()) - {GRAPH} - dead)
    tensors = {name: reader.get_tensor(name) for name in names}
    training = layouts[1]
    for name, value in tensors.items():  # the weights in one vector, and the optimizer's of them
        if name.startswith("agent/policy/") and np.shape(value) == (training.size,):
            tensors[name] = training.living(value)
    for node in graph.nodes:
        if any(each.checkpoint_key in dead for each in node.attributes):
            node.ClearField("attributes")
    tensors[GRAPH] = graph.SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        copy = f"{folder}/checkpoint"
        values = [tf.convert_to_tensor(value) for value in tensors.values()]
        tf.raw_ops.SaveV2(
            prefix=copy,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=values,
        )
        yield copy


def drop_dead(
    graph: TrackableObjectGraph, layout: OldLayout, reader: tf.train.CheckpointReader
) -> set[str]:
    """Take the dead variables out of every list in a graph that is `layout`; returns their names.

    Such a list is told by the shapes of all its variables, one after another.
    """
    shapes = reader.get_variable_to_shape_map()
    dead = set()
    for node in graph.nodes:
        children = {child.local_name: child for child in node.children}
        if set(children) != {str(index) for index in range(len(layout.shapes))}:
            continue
        variables = [graph.nodes[children[str(i)].node_id] for i in range(len(children))]
        names = [each.attributes[0].checkpoint_key for each in variables if each.attributes]
        if [tuple(shapes.get(name, ())) for name in names] != layout.shapes:
            continue
        living = [children[str(at)].node_id for at in layout.live]
        del node.children[:]
        for index, node_id in enumerate(living):
            node.children.add(node_id=node_id, local_name=str(index))
        for at in set(range(len(names))) - set(layout.live):
            dead.add(names[at])
    return dead
