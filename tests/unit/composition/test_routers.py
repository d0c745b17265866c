"""Where a Split sends a request, and how urgent the copies of a Shadow are, without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from pytriton import Shadow, Split
from pytriton.model_config import DynamicBatcher
from pytriton.model_config.triton_model_config import TritonModelConfig


def request(**parameters):
    return SimpleNamespace(parameters=parameters)


def test_a_key_in_a_header_may_have_any_letter_case():
    split = Split({"one": 1, "two": 1}, by="X-User")
    for user in map(str, range(20)):
        found = {split.target_of(request(**{name: user})) for name in ("X-User", "x-user", "X-USER") * 5}
        assert len(found) == 1


def test_keys_stay_with_their_models_in_whatever_order_weights_are_given():
    split = Split({"one": 9, "two": 1}, by="user")
    users = [request(user=str(user)) for user in range(200)]
    before = [split.target_of(user) for user in users]
    split.weights = {"two": 1, "one": 9}
    assert [split.target_of(user) for user in users] == before


class Handle:
    """Notes with which priority a copy is sent."""

    def __init__(self):
        self.priorities = []

    def with_options(self, *, priority):
        self.priorities.append(priority)
        return self

    async def pass_on(self, request):
        return {}


@pytest.mark.parametrize(
    ("batcher", "expected"), [(DynamicBatcher(priority_levels=3, default_priority_level=1), 3), (DynamicBatcher(), 0)]
)
def test_copies_have_the_lowest_priority_that_their_model_has(batcher, expected):
    shadow, handle = Shadow("one", to="two"), Handle()
    shadow.look_up(lambda name: TritonModelConfig(model_name=name, batcher=batcher if name == "two" else None))

    async def answer():
        shadow.answered(request(), {}, {"two": handle})

    asyncio.run(answer())
    assert handle.priorities == [expected]
