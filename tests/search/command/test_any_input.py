"""Whatever goes in, options of search come out, or one line that refuses it."""

import dataclasses
import math

import pytest
from hypothesis import strategies as st

from kytolly.command import entry
from kytolly.command.table import SEARCH_COMMANDS
from kytolly.search.command import train_optimized
from kytolly.search.reformulate.options import SECTIONS, options_from
from tests.config.test_any_input import (
    BUDGETS,
    check_any,
    check_line,
    config_or_one_line,
    other_lines,
    values,
)


@st.composite
def reformulation_mappings(draw):
    """Settings of train_optimized.py: sections with their own names, others', or none."""
    fields = {name: list(kind.__dataclass_fields__) for name, kind in SECTIONS.items()}
    given = {}
    for name in draw(st.lists(st.sampled_from([*fields, "seed", "collection", "sed"]), max_size=3)):
        known = st.sampled_from(fields.get(name) or [*fields["training"], "", "seed"])
        given[name] = draw(st.dictionaries(known, values, max_size=2) | values)
    return given


def check_options(options):
    """What was accepted is finite, and is accepted again."""
    if options is not None:
        given = dataclasses.asdict(options)
        assert options_from(given) == options
        numbers = [value for name in SECTIONS for value in given[name].values()]
        assert all(math.isfinite(value) for value in numbers if isinstance(value, float))


@pytest.mark.parametrize("examples", BUDGETS)
def test_any_settings_of_reformulation(examples):
    def check(given):
        check_options(config_or_one_line(options_from, given))

    check_any(check, reformulation_mappings(), examples)


@pytest.mark.parametrize("examples", BUDGETS)
def test_any_line(examples):
    def parse(line):
        door = line[0] == "train_optimized"
        return train_optimized.parse(line[1:]) if door else entry.parse(line)

    lines = other_lines([*SEARCH_COMMANDS, "train_optimized"])
    check_any(lambda line: check_line(parse, line), lines, examples)
