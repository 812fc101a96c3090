"""Acting for some of all environments with the rounding of acting for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kytolly.model.numpy_inference import NumpyNetwork, Obs

MAX_PRODUCTS = 2**21  # of two numbers, computed in vain in each step


class RowsAmongAll:
    """A network in NumPy for some rows, which are computed as among all rows.

    BLAS rounds a row of a matrix product by how many rows there are and by its place among them.

    Args:
        network: It.
        rows: Places of the rows.
        total: All rows.
    """

    def __init__(self, network: NumpyNetwork, rows: slice, total: int):
        self.network, self.rows, self.total = network, rows, total
        self.take = network.take

    def __call__(self, obs: Obs) -> np.ndarray:
        """[E, P] params of observations [E, *obs]."""
        if isinstance(obs, Mapping):
            whole: Obs = {name: self._among_all(part) for name, part in obs.items()}
        else:
            whole = self._among_all(obs)
        return self.network(whole)[self.rows]

    def _among_all(self, part: np.ndarray) -> np.ndarray:
        whole = np.zeros((self.total, *part.shape[1:]), part.dtype)
        whole[self.rows] = part
        return whole


def among_all(network: NumpyNetwork, rows: slice, total: int) -> Any:
    """The network for some of all rows, as among all where the others cost little."""
    products = sum(weight.size for weight in network.weights) * (total - (rows.stop - rows.start))
    is_cheap = products <= MAX_PRODUCTS and not network.program.has_convolutions
    return RowsAmongAll(network, rows, total) if is_cheap else network
