"""A network class of the user's own: its run can be loaded, or training does not begin."""

from tests.helpers.new_process import in_new_process

CLASS = """
import sys, keras, kytolly

{decorator}
class MyNetwork(keras.Model):
    def __init__(self, num_actions, width=8, **options):
        super().__init__(**options)
        self.num_actions, self.width = num_actions, width
        self.hidden = keras.layers.Dense(width, activation="relu")
        self.head = keras.layers.Dense(num_actions)

    def call(self, obs, training=False):
        return self.head(self.hidden(obs))
{get_config}
"""
GET_CONFIG = """
    def get_config(self):
        own = {"num_actions": self.num_actions, "width": self.width}
        return {**super().get_config(), **own}
"""
TRAIN = """
from tests.deployment.conftest import DQN
result = kytolly.Trainer(sys.argv[1], progress=False).train(DQN, "CartPole-v1", model={model})
obs = [0.1, -0.2, 0.3, -0.4]
print(result.agent.act(obs), kytolly.load(result.run_dir).act(obs))
"""
LOAD = "print(kytolly.load(sys.argv[1], sys.argv[2]).act([0.1, -0.2, 0.3, -0.4]))"
DECORATOR = "@keras.saving.register_keras_serializable()"


def script(decorator="", get_config=GET_CONFIG, then=LOAD):
    return CLASS.format(decorator=decorator, get_config=get_config) + then


def test_a_class_that_nobody_registered_is_registered_before_training(tmp_path):
    train = script(then=TRAIN.format(model="MyNetwork(2)"))
    ended = in_new_process(
        "import warnings; warnings.simplefilter('always')\n" + train, tmp_path / "run"
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    first, second = ended.stdout.split()
    assert first == second
    assert "MyNetwork is now registered with Keras, under the name Custom>MyNetwork" in ended.stderr
    for weights in ("best", "last"):
        ended = in_new_process(script(DECORATOR), tmp_path / "run", weights)
        assert ended.returncode == 0, ended.stderr[-2000:]
        assert weights == "last" or ended.stdout.strip() == first
    ended = in_new_process("import sys, kytolly\n" + LOAD, tmp_path / "run", "best")
    assert "is of the class MyNetwork, which this program does not know" in ended.stderr
    assert f"with {DECORATOR} above the class" in ended.stderr


def test_a_class_without_get_config_is_refused_before_training(tmp_path):
    then = TRAIN.format(model="MyNetwork(2)")
    ended = in_new_process(script(get_config="", then=then), tmp_path / "run")
    assert ended.returncode and "cannot be saved and loaded again" in ended.stderr
    assert "Give the class MyNetwork" in ended.stderr and "get_config()" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_class_whose_config_lacks_an_argument_is_refused_before_training(tmp_path):
    lacking = GET_CONFIG.replace(', "width": self.width', "")
    then = TRAIN.format(model="MyNetwork(2, 9)")
    ended = in_new_process(script(get_config=lacking, then=then), tmp_path / "run")
    assert ended.returncode and "cannot be saved and loaded again" in ended.stderr
    assert not (tmp_path / "run").exists()
