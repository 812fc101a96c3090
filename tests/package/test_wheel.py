"""What is installed: one package, which a user's own modules of the same names cannot disturb."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kytolly

ROOT = Path(__file__).parents[2]
# Our rooms, and what a project of somebody else has at its top.
HOSTILE = ("config", "model", "agent", "policy", "settings", "trainer", "environment/__init__")
TRAIN = """
import json, sys
import kytolly
from gpu_optimize import configure_gpu_optimization
from kytolly import DQNConfig, Trainer

configure_gpu_optimization(verbose=False, compile_cache=False, enable_xla=False)
cfg = DQNConfig(
    total_env_steps=200,
    warmup_env_steps=32,
    batch_size=8,
    hidden_units=(4,),
    evaluation_episodes=1,
    final_evaluation_episodes=1,
)
result = Trainer("run", progress=False).train_dqn(cfg, "CartPole-v1")
ours = [name for name in sys.modules if name.split(".")[0] == "kytolly"]
places = [sys.modules[name].__file__ for name in [*ours, "gpu_optimize"]]
print(json.dumps({"env_steps": result.summary["env_steps"], "places": places}))
"""


def check_call(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which the wheel was installed, built as a release is: from the archive."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    options = "--no-deps --no-build-isolation --no-index --no-cache-dir --wheel-dir".split()
    build = (sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", wheels)
    check_call(*build, cwd=ROOT)
    check_call(*pip, "wheel", *options, wheels, *wheels.glob("kytolly-*.tar.gz"))
    (wheel,) = wheels.glob("kytolly-*.whl")
    check_call(*pip, "install", "--no-deps", "--no-index", "--no-compile", "--target", site, wheel)
    return site


def run_in(folder, site, *command):
    """Standard output of Python in a user's folder, which comes first in its search path."""
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return check_call(sys.executable, *command, cwd=folder, env=env)


def test_the_wheel_installs_one_package_and_one_door(site):
    names = {path.name for path in site.iterdir()} - {"bin"}  # where pip puts the command
    (info,) = [name for name in names if name.endswith(".dist-info")]
    assert names == {"kytolly", "gpu_optimize.py", info}
    assert info == f"kytolly-{kytolly.__version__}.dist-info"
    assert not [path for path in site.rglob("*") if path.is_symlink()]
    rooms = {path.name for path in (ROOT / "kytolly").iterdir()} - {"__pycache__"}
    assert {path.name for path in (site / "kytolly").iterdir()} == rooms


@pytest.mark.learning
def test_it_trains_beside_modules_with_the_names_of_our_rooms(site, tmp_path):
    for name in HOSTILE:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise RuntimeError(f'{__file__} is not what was meant')\n")
    (tmp_path / "train_it.py").write_text(TRAIN)
    result = json.loads(run_in(tmp_path, site, "train_it.py").splitlines()[-1])
    assert result["env_steps"] >= 200
    assert all(Path(place).is_relative_to(site) for place in result["places"])


def test_the_command_line_is_part_of_it(site, tmp_path):
    assert "doctor" in run_in(tmp_path, site, "-m", "kytolly", "--help")
    assert (site / "kytolly" / "py.typed").is_file()


def test_an_import_of_the_package_loads_nothing_heavy(site, tmp_path):
    program = "import json, kytolly, sys; print(json.dumps([kytolly.__file__, *sys.modules]))"
    place, *loaded = json.loads(run_in(tmp_path, site, "-c", program))
    assert Path(place).is_relative_to(site)
    assert not {"tensorflow", "keras", "numpy", "gymnasium", "yaml"} & set(loaded)
    assert [name for name in loaded if name.startswith("kytolly.")] == ["kytolly.keras_classes"]
