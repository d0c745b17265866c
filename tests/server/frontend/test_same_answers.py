"""The native front end answers as Triton's own HTTP endpoint does, but for differences that are listed."""

from __future__ import annotations

import pytest

from tests.server.frontend.cases import CASES, DIFFERENCES
from tests.server.frontend.wire import Answer, connected

DIFFERENT = {name for difference in DIFFERENCES for name in difference.cases}


def asked(config, request) -> Answer:
    with connected(config) as client:
        return client.ask(request)


@pytest.mark.parametrize("name", [name for name in CASES if name not in DIFFERENT])
def test_both_front_ends_give_the_same_answer(pair, name):
    request = CASES[name]
    native, triton = (asked(pair[frontend], request) for frontend in ("native", "triton"))
    assert native == triton
