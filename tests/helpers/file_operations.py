"""Calls before every operation of this process that changes a file."""

import builtins
import io
import os
import pathlib

import tensorflow as tf


def before_operations(call):
    """Let this process make a call before each operation that changes a file."""

    def watched(function, changes=lambda *args, **options: True):
        def watch(*args, **options):
            if changes(*args, **options):
                call(function.__name__)
            return function(*args, **options)

        return watch

    def opens_to_write(file, mode="r", *args, **options):
        return any(letter in mode for letter in "wa+x")

    for name in ("replace", "fsync", "unlink", "truncate", "mkdir"):
        setattr(os, name, watched(getattr(os, name)))
    io.open = watched(io.open, opens_to_write)
    pathlib.io.open = builtins.open = io.open
    tf.train.Checkpoint.write = watched(tf.train.Checkpoint.write)
    tf.summary.experimental.write_raw_pb = watched(tf.summary.experimental.write_raw_pb)
