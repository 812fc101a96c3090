"""Whatever goes in, a config comes out, or one line that refuses it; random input, fixed seed."""

import contextlib
import io
import math

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kytolly.agent.algorithms import ALGORITHMS, make_config
from kytolly.command import entry, train
from kytolly.command.exits import BadInput, exit_status
from kytolly.command.options import config_fields
from kytolly.command.table import COMMANDS, SEARCH_COMMANDS
from kytolly.config.files import read_settings

NAMES = {name: sorted(config_fields(*train.config_kinds(name))) for name in ALGORITHMS}
BUDGETS = [40, pytest.param(5_000, marks=pytest.mark.learning)]

ODD = "auto host gpu gpu:0 gpu:² none null true 1e5 .5 -0 1_000 nan -inf 1e400 ٣ 64,64 , tahn"
ODD += (
    " 1e3 -0.0 +1 0x10 \u00bd \u2460 \u2167 \u22121 \uff11 1.0 True aut\u043e [64] 64,,64 64,[64] "
)
ODD += "dqn=1 --seed --"
words = st.sampled_from(
    [
        *ODD.split(),
        "",
        " ",
        "\0",
        "a\nb",
        "\ud800",
        "\u202e1",
        "\ufeff1",
        " 1",
        "1 ",
        "9" * 400,
        "9" * 5_000,
        "x" * 5_000,
        "1," * 100,
    ]
)
LIMITS = [0, 1, 2**17, 10**6, 2**31, 2**63, -(2**63) - 1, 10**18, 10**400, 1e300, 1e31, -0.0]
numbers = st.sampled_from([*LIMITS, math.nan, math.inf, -math.inf]) | st.integers() | st.floats()
scalars = st.none() | st.booleans() | numbers | words | st.text(max_size=20)
lists = st.lists(scalars | st.lists(scalars, max_size=3), max_size=20)
values = numbers | scalars | lists | st.dictionaries(words, scalars)
# What YAML has beyond settings: each is an exception in a loader without care.
SIGNS = "a: |seed: |- |? |{|}|[|, |]|!!int |!!timestamp x|!!bool x|&a |*a|<<: |0x_|=|\t|\n|'|#|²|%"


def names(algorithm):
    return st.sampled_from(NAMES[algorithm] * 4 + ["", "seed ", "algorithm", "settings"])


@st.composite
def mappings(draw):
    algorithm = draw(st.sampled_from(list(ALGORITHMS)))
    return algorithm, draw(st.dictionaries(names(algorithm), values, max_size=2))


@st.composite
def yaml_texts(draw):
    """YAML of settings, whole or damaged, or any text of YAML's own signs."""
    algorithm, given = draw(mappings())
    if draw(st.booleans()):
        return algorithm, draw(st.lists(st.sampled_from(SIGNS.split("|"))).map("".join))
    given = draw(st.sampled_from([given, {"settings": given}, {**given, "settings": given}]))
    text = yaml.safe_dump(given, allow_unicode=True)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.text(max_size=3)) + text[at:]
    return algorithm, text


def other_lines(names):
    """Command lines of some commands, whose positions and flags may be of another one."""
    flags = "--seed --episodes --steps --env --top --collection --queries --run-file --repeats "
    flags += "--seeds --figure --quick --json --trust --epochs --batch-size --device --log-dir "
    flags += "--fusion "
    flag = st.sampled_from(f"{flags} --config --no-amp --test --baseline-flow --profile".split())
    texts = scalars.map(str)
    parts = st.tuples(flag, texts) | st.tuples(flag) | texts.map(lambda text: (text,))
    parts |= st.tuples(flag, texts).map(lambda pair: ("=".join(pair),))
    lines = st.tuples(st.sampled_from(sorted(names)), st.lists(parts, max_size=4))
    return lines.map(lambda line: [line[0], *(word for part in line[1] for word in part)])


@st.composite
def command_lines(draw):
    algorithm = draw(st.sampled_from(list(ALGORITHMS)))
    line = ["train", algorithm, "--env", "CartPole-v1"]
    for _ in range(draw(st.integers(0, 3))):
        flag = "--" + draw(names(algorithm)).replace("_", "-")
        value = draw(scalars.map(str))
        line += draw(st.sampled_from([[flag, value], [f"{flag}={value}"], [flag]]))
    return line


def config_or_one_line(make, *arguments):
    """The config that `make` returns; None if it raises one line of ours."""
    try:
        return make(*arguments)
    except (ValueError, BadInput) as error:
        message = str(error)
    assert len(message.splitlines()) == 1 and len(message) < 6_000 and "`int`" not in message
    return None


def check_config(cfg):
    """What was accepted is finite, has sizes that int32 holds, and is accepted again."""
    if cfg is None:
        return
    given = {name: getattr(cfg, name) for name in [*NAMES[cfg.algorithm], "algorithm"]}
    assert all(math.isfinite(value) for value in given.values() if isinstance(value, float))
    assert 0 < cfg.env_steps_per_iteration < 2**31 and 0 < cfg.updates_per_iteration < 2**31
    assert make_config(given) == cfg


def check_any(check, strategy, examples):
    """Run a check on so many examples, the same each time."""
    fixed = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=60_000,  # milliseconds: nothing may hang, on a slow machine either
        suppress_health_check=list(HealthCheck),
    )
    fixed(given(strategy)(check))()


@pytest.mark.parametrize("examples", BUDGETS)
def test_any_mapping(examples):
    def check(drawn):
        algorithm, given = drawn
        check_config(config_or_one_line(make_config, {**given, "algorithm": algorithm}))

    check_any(check, mappings(), examples)


@pytest.mark.parametrize("examples", BUDGETS)
def test_any_file(examples, tmp_path):
    path = tmp_path / "any.yaml"

    def check(drawn):
        algorithm, text = drawn
        path.write_text(text, encoding="utf-8")
        found = config_or_one_line(read_settings, path)
        if found is not None:
            given = {**found[0], "algorithm": algorithm}
            check_config(config_or_one_line(make_config, given))

    check_any(check, yaml_texts(), examples)


@pytest.mark.parametrize("examples", BUDGETS)
def test_any_command_line(examples):
    def check(line):
        found = []

        def parse():
            found.append(train.given_config(entry.parse(line))[0])
            return 0

        with contextlib.redirect_stderr(io.StringIO()) as printed:
            status = exit_status(parse)
        if status == 0:
            check_config(found[0])
        else:
            assert status == 2 and printed.getvalue().count("\n") == 1, printed.getvalue()

    check_any(check, command_lines(), examples)


@pytest.mark.parametrize("examples", BUDGETS)
def test_any_line_of_another_command(examples):
    names = COMMANDS.keys() - SEARCH_COMMANDS.keys() - {"train"} | {"start"}
    check_any(lambda line: check_line(entry.parse, line), other_lines(names), examples)


def check_line(parse, line):
    """A command line is understood, or refused in one line."""
    found = []

    def run():
        found.append(parse(line))
        return 0

    with contextlib.redirect_stderr(io.StringIO()) as printed:
        status = exit_status(run)
    if status:
        assert status == 2 and printed.getvalue().count("\n") == 1, printed.getvalue()
        assert len(printed.getvalue()) < 1_100
        return
    given = vars(found[0])
    if given.get("command") != "tune":  # its settings are checked with the algorithm's config
        whole = [value for value in given.values() if type(value) is int]
        assert all(0 <= value < 2**31 for value in whole), given
    paths = [given.get(name) for name in ("run_dir", "log_dir", "config", "figure", "env")]
    assert all(path is None or path.strip() for path in paths), given
