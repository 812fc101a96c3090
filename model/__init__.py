"""Networks: functions of one input batch and weights, with no notion of reward or time."""

import keras as keras  # before any file of this room: Keras's import imports them all
