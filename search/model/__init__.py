"""Networks of texts, queries and documents."""

import keras as keras  # before any file of this room: Keras's import imports them all
