"""How long a handle waits for a model that is not there."""

from __future__ import annotations

import pytest

from pytriton.client.exceptions import PyTritonClientModelUnavailableError
from pytriton.composition.connections import Connections
from pytriton.composition.handle import ModelCallError, ModelHandle
from tests.unit.scripted import Script


class Doors:
    """A connector with one transport."""

    secret = "secret"

    def __init__(self, server):
        self.server = server

    def transport(self, *, streams=False):
        return self.server


@pytest.mark.parametrize(("age_s", "wait_s"), [(0.0, 60.0), (45.0, 15.0), (3600.0, 5.0)])
def test_a_model_is_waited_for_as_long_as_the_server_may_be_starting(age_s, wait_s):
    times = iter([100.0, 100.0 + age_s])
    connections = Connections("model", None, clock=lambda: next(times))
    assert connections.session.init_timeout_s == wait_s


def test_a_model_that_was_missing_is_not_waited_for_as_long_again():
    doors = Doors(Script(True, PyTritonClientModelUnavailableError("there is none")))
    handle = ModelHandle("missing", "caller", lambda: doors, is_async=False)
    with pytest.raises(ModelCallError, match="there is none"):
        handle(1.0)
    assert handle.connections.session.init_timeout_s == 5.0
