"""The edge answers as Triton's own HTTP endpoint does, but for differences that are listed."""

from __future__ import annotations

import pytest

from tests.server.edge.cases import CASES, DIFFERENCES, FAULTS, comparable
from tests.server.edge.wire import Answer, connected

pytestmark = pytest.mark.either_proxy

DIFFERENT = {name: difference for difference in DIFFERENCES for name in difference.cases}


def answers(pair, name) -> tuple[Answer, Answer]:
    """Of the edge, and of Triton's own endpoint."""
    found = []
    for edge in ("native", "triton"):
        with connected(pair[edge]) as client:
            found.append(comparable(client.ask(CASES[name])))
    return found[0], found[1]


def cases():
    """All that are not different on purpose."""
    for name in CASES:
        if name not in DIFFERENT:
            marks = pytest.mark.xfail(strict=True, reason=FAULTS[name]) if name in FAULTS else ()
            yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [*cases()])
def test_both_endpoints_give_the_same_answer(pair, name):
    native, triton = answers(pair, name)
    assert native == triton


@pytest.mark.parametrize("name", DIFFERENT)
def test_deliberate_differences_are_those_of_the_table(pair, name):
    native, triton = answers(pair, name)
    assert (triton.status, native.status) == (DIFFERENT[name].triton, DIFFERENT[name].native)
    assert native != triton
    assert native.error or native.json
