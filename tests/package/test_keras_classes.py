"""Keras knows this library's classes, in whatever order both are imported."""

import subprocess
import sys

import pytest

FINDS = "; print(keras.saving.get_registered_object('kytolly>NormalizedMLP').__name__)"


@pytest.mark.parametrize(
    "imports",
    [
        "import kytolly, keras",
        "import kytolly, tensorflow, keras",  # which first asks where Keras lies
        "import keras, kytolly",
    ],
)
def test_keras_finds_the_networks(imports):
    done = subprocess.run(
        [sys.executable, "-c", imports + FINDS], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["NormalizedMLP"]
