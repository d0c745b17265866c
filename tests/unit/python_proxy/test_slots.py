"""Batches of the server's direct strategy, in which some requests are real."""

import importlib
import sys

import numpy as np
import pytest

from tests.unit import backend
from tests.unit.backend import InferenceRequest


@pytest.fixture
def proxy():
    """The module, imported as in the backend's stub."""
    with pytest.MonkeyPatch.context() as patch:
        backend.install(patch)
        yield importlib.import_module("pytriton.python_proxy.model")
    del sys.modules["pytriton.python_proxy.model"]


class Batches:
    """Answers with the first value of each request, at once or later."""

    def __init__(self, later=False):
        self.later = later
        self.calls = []
        self.is_closed = False

    def execute(self, requests):
        values = [int(tensor.as_numpy()[0, 0]) for request in requests for tensor in request.inputs()[:1]]
        self.calls.append(values)
        return None if self.later else values

    def close(self):
        self.is_closed = True


def request(value, is_real):
    return InferenceRequest({"x": np.full((1, 1), value), "ready": np.full((1, 1), is_real, np.int32)})


def test_only_real_requests_are_handed_on_and_answers_keep_their_places(proxy):
    batches = Batches()
    requests = [request(1, 0), request(2, 1), request(3, 0), request(4, 1)]
    answers = proxy.PlaceholderFilter(batches, "ready").execute(requests)
    assert batches.calls == [[2, 4]]
    assert answers[1] == 2
    assert answers[3] == 4
    assert len(answers) == 4


def test_a_batch_without_a_real_request_is_not_handed_on(proxy):
    batches = Batches()
    assert len(proxy.PlaceholderFilter(batches, "ready").execute([request(1, 0)])) == 1
    assert batches.calls == []


def test_requests_that_nobody_made_end_at_once_when_the_others_are_answered_later(proxy):
    batches = Batches(later=True)
    idle, real = request(1, 0), request(2, 1)
    assert proxy.PlaceholderFilter(batches, "ready").execute([idle, real]) is None
    assert batches.calls == [[2]]
    assert len(idle.sender.all()) == 1
    assert real.sender.sent == []


def test_closing_closes_what_answers(proxy):
    batches = Batches()
    proxy.PlaceholderFilter(batches, "ready").close()
    assert batches.is_closed


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, None),
        ({"sequence_batching": {"oldest": {}, "control_input": []}}, None),
        (
            {
                "sequence_batching": {
                    "control_input": [
                        {"name": "start", "control": [{"kind": "CONTROL_SEQUENCE_START"}]},
                        {"name": "ready", "control": [{"kind": "CONTROL_SEQUENCE_READY"}]},
                    ]
                }
            },
            "ready",
        ),
    ],
)
def test_the_configuration_names_the_input_that_tells(proxy, config, name):
    assert proxy.ready_input(config) == name
