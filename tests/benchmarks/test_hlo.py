"""Launches, loops and waits of a small program, counted by hand."""

import textwrap

import pytest

from kytolly.benchmarks import hlo
from kytolly.benchmarks.gpu_program import count

# An iteration of 2 steps in a loop, 3 x 2 updates in nested loops, and a choice.
TEXT = textwrap.dedent(
    """
    HloModule jit_program, is_scheduled=true

    %step (p: (s32[], f32[4])) -> (s32[], f32[4]) {
      %p = (s32[], /*index=1*/f32[4]{0}) parameter(0)
      %n = s32[] get-tuple-element(%p), index=0
      %x = f32[4]{0} get-tuple-element(%p), index=1
      %move = f32[4]{0} fusion(%x), kind=kLoop, calls=%c, metadata={op_name="env/add"}
      %copy.1 = f32[4]{0} copy(%move)
      ROOT %t = (s32[], f32[4]{0}) tuple(%n, %copy.1)
    }

    %minibatch (p: (s32[])) -> (s32[]) {
      %p = (s32[]) parameter(0)
      %a = f32[4]{0} fusion(%p), kind=kLoop, calls=%c
      %b = f32[4]{0} custom-call(%a), custom_call_target="gemm"
      %c = f32[4]{0} fusion(%b), kind=kInput, calls=%c
      ROOT %t = (s32[]) tuple(%p)
    }

    %epoch (p: (s32[])) -> (s32[]) {
      %p = (s32[]) parameter(0)
      %sort = s32[8]{0} sort(%p), dimensions={0}
      ROOT %w = (s32[]) while(%p), condition=%c, body=%minibatch, @2
    }

    %search (p: (s32[])) -> (s32[]) {
      %p = (s32[]) parameter(0)
      ROOT %f = s32[] fusion(%p), kind=kLoop, calls=%c
    }

    %sync (p: f32[4]) -> f32[4] {
      %p = f32[4]{0} parameter(0)
      ROOT %copy = f32[4]{0} copy(%p)
    }

    %keep (p: f32[4]) -> f32[4] {
      ROOT %p = f32[4]{0} parameter(0)
    }

    %graph (p: f32[4]) -> f32[4] {
      %p = f32[4]{0} parameter(0)
      ROOT %f = f32[4]{0} fusion(%p), kind=kLoop, calls=%c
    }

    %iteration (p: (s32[])) -> (s32[]) {
      %p = (s32[]) parameter(0)
      %g = f32[4]{0} call(%p), to_apply=%graph
      %r = f32[4]{0} fusion(%g), kind=kLoop, calls=%c
      %w.1 = (s32[], f32[4]{0}) while(%p), condition=%c, body=%step, @2
      %w.2 = (s32[]) while(%p), condition=%c, body=%epoch, @3
      %w.3 = (s32[]) while(%p), condition=%c, body=%search
      %start = (f32[4]{0}, f32[4]{0}) copy-start(%r)
      %done = f32[4]{0} copy-done(%start)
      %if = f32[4]{0} conditional(%p, %r, %r), branch_computations={%sync, %keep}
      ROOT %t = (s32[]) tuple(%p)
    }

    %c (p: s32[]) -> pred[] {
      ROOT %p = pred[] parameter(0)
    }

    ENTRY %main (a: s32[]) -> s32[] {
      %a = s32[] parameter(0)
      %f = s32[] fusion(%a), kind=kLoop, calls=%c
      ROOT %w = s32[] while(%a), condition=%c, body=%iteration
    }
    """
)
for trips in "23":
    TEXT = TEXT.replace(f"@{trips}", f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}')


def test_an_iteration_is_counted_by_loop():
    program = hlo.read_program(TEXT)
    iteration = program.find(None)
    # call 1, fusion 1, copy-start 1; steps 2 x (fusion, copy); 3 x (sort + 2 x 3); search 1; copy.
    assert iteration.formula() == "3 + 2 x 2 + 3 x (1 + 2 x 3) + n x 1 + (1 or 0)"
    assert iteration.launches() == 3 + 4 + 21 + 1 + 1
    assert iteration.launches(min) == 3 + 4 + 21 + 1 + 0
    assert iteration.copies() == 1 + 2 + 1  # copy-start, one a step, the larger branch
    assert iteration.waits() == 2  # the search, the choice
    assert iteration.sites() == (1, 1)
    assert program.waits() == 3  # and the iterations themselves
    assert program.kernels[0].op == "fusion"


def test_an_env_step_and_an_update_are_loops_of_their_lengths():
    counts = count(hlo.read_program(TEXT), steps=2, updates=6, iterations=None)
    assert (counts.env_step, counts.update) == (2, 3)
    # Two env steps in each of the 2 turns: half as much a step.
    unrolled = count(hlo.read_program(TEXT), steps=4, updates=6, iterations=None)
    assert unrolled.env_step == 1


def test_waits_inside_a_loop_count_for_each_turn():
    text = TEXT.replace(
        "%copy.1 = f32[4]{0} copy(%move)",
        "%copy.1 = f32[4]{0} conditional(%n, %x, %x), true_computation=%sync, "
        "false_computation=%keep",
    )
    assert hlo.read_program(text).find(None).waits() == 2 + 2


def test_an_iteration_of_several_turns_learns_in_the_last():
    counts = count(hlo.read_program(TEXT), steps=1, updates=1, iterations=None, turns=10)
    assert counts.launches == 30 + 9 * 29
    assert counts.waits == 20


def test_the_names_of_branches_are_read_in_both_forms():
    both = hlo.Instruction("if", "conditional", "f32[]", "true_computation=%a, false_computation=b")
    assert hlo.branch_names(both) == ["a", "b"]


def test_a_text_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="ENTRY"):
        hlo.read_program("HloModule empty")


def test_a_program_without_the_loop_of_iterations_is_refused():
    with pytest.raises(ValueError, match="1009 turns"):
        count(hlo.read_program(TEXT), steps=2, updates=6, iterations=1009)
