"""Adam without what only several devices need."""

from typing import Any

import keras


class Adam(keras.optimizers.Adam):
    """Keras's Adam for one device."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        """The gradients as they are.

        TensorFlow's sum over devices is a custom gradient, which its registry keeps for ever in
        every graph, with all variables of the graph: 200 MB for each training in a process.
        """
        return grads_and_vars
