"""What requests say beside their tensors: from the server's requests over the wire to the callable's."""

import json
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.decorators import batch
from pytriton.proxy.types import Request
from pytriton.wire.frames import REQUEST, Frame, pack, unpack
from pytriton.wire.tensors import joined
from pytriton.worker.requests import has_sequences, requests_of
from tests.unit.backend import InferenceRequest
from tests.unit.batches import answers
from tests.unit.links import BOTH, CONFIG, Link

X = np.array([[1, 2]], np.float32)
OUTPUTS = ["y", "z"]
IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.fixture(scope="module", autouse=True)
def codec(proxy_model):
    """The proxy's module, imported as in the backend's stub."""
    return sys.modules["pytriton.python_proxy.codec"]


def encode_details(*arguments, **options):
    return sys.modules["pytriton.python_proxy.codec"].encode_details(*arguments, **options)


@pytest.fixture
def link(proxy_model, tmp_path):
    link = Link(proxy_model, tmp_path)
    yield link
    link.end()


def server_request(*, name="", sequence=0, flags=0, timeout_us=0, outputs=("y", "z"), **parameters):
    request = InferenceRequest({"x": X}, outputs, **parameters)
    request.name, request.sequence, request.sequence_flags, request.timeout_us = name, sequence, flags, timeout_us
    return request


def received(*requests):
    """The callable's requests for some of the server's."""
    metadata, apart = encode_details(list(requests), len(OUTPUTS), traced=False)
    rows = [1] * len(requests)
    frame = Frame(REQUEST, 1, len(requests), rows, metadata, apart=apart)
    frame = unpack(memoryview(bytearray(pack(frame, [joined(0, [X] * len(requests), len(requests))]))))
    assert frame.apart is apart
    return requests_of(frame, ["x"], OUTPUTS)


def test_requests_that_say_nothing_cost_nothing():
    assert encode_details([server_request(), server_request()], len(OUTPUTS), traced=False) == (b"", False)
    request = received(server_request())[0]
    assert (request.request_id, request.parameters, request.deadline, request.correlation_id) == ("", {}, None, None)
    assert request.requested_output_names == OUTPUTS


@given(st.lists(IDS, min_size=1, max_size=4), st.one_of(st.integers(0, 2**64 - 1), IDS), st.integers(0, 3))
def test_ids_and_sequences_arrive(names, sequence, flags):
    requests = received(*[server_request(name=name, sequence=sequence, flags=flags) for name in names])
    assert [request.request_id for request in requests] == names
    for request in requests:
        if sequence in (0, ""):
            assert (request.correlation_id, request.sequence_start, request.sequence_end) == (None, False, False)
        else:
            assert request.correlation_id == sequence
            assert (request.sequence_start, request.sequence_end) == (bool(flags & 1), bool(flags & 2))


def test_a_timeout_counts_from_now():
    before = time.monotonic()
    (request,) = received(server_request(timeout_us=2_500_000))
    assert before + 2.5 <= request.deadline <= time.monotonic() + 2.5


def test_each_request_has_its_own_details():
    first, second, third = received(
        server_request(name="a", outputs=["z"]), server_request(), server_request(sequence=3, mine=1, priority=2)
    )
    assert (first.request_id, first.requested_output_names, first.parameters) == ("a", ["z"], {})
    assert (second.request_id, second.requested_output_names, second.correlation_id) == ("", OUTPUTS, None)
    assert (third.correlation_id, third.parameters) == (3, {"mine": 1})


@pytest.mark.parametrize(("outputs", "apart"), [(["y", "z"], False), (["z"], True)])
def test_only_requests_for_a_part_of_the_outputs_must_be_seen_one_by_one(outputs, apart):
    request = server_request(name="a", sequence=3, timeout_us=7, outputs=outputs, mine=1)
    assert encode_details([request], len(OUTPUTS), traced=False)[1] is apart


def test_only_a_sequence_makes_a_batch_one_of_sequences():
    for request, expected in ((server_request(sequence=1), True), (server_request(name="sequence", sequence=0), False)):
        metadata, _ = encode_details([server_request(), request], len(OUTPUTS), traced=False)
        assert has_sequences(Frame(REQUEST, metadata=metadata)) is expected
    assert not has_sequences(Frame(REQUEST))


def test_batch_stays_on_its_short_way_whatever_requests_say(link):
    made = []

    class Counted(Request):
        @classmethod
        def received(cls, *args):
            requests = super().received(*args)
            made.extend(requests)
            return requests

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytriton.worker.requests.Request", Counted)
        link.serve(batch(lambda x: {"y": x, "z": x.astype(bytes)}), BOTH)
        request = server_request(name="a", sequence=3, timeout_us=7, mine=1)
        (response,) = link.model.execute([request])
        assert response.outputs["y"].tolist() == X.tolist()
        assert made == []
        link.model.execute([server_request(outputs=["z"])])
        assert len(made) == 1


def test_the_details_of_a_request_with_other_inputs_stay():
    request = Request(
        {"x": X},
        {"mine": 1},
        "span",
        ["y"],
        request_id="a",
        deadline=3.0,
        correlation_id=7,
        sequence_start=True,
        sequence_end=True,
    )
    request._details = (None, 0)
    other = request.with_data({"x": X * 2})
    assert other["x"][0, 1] == 4
    for name in Request.__slots__:
        if name not in ("_data", "_block", "_index"):
            assert getattr(other, name) is getattr(request, name), name


def no_text(request):
    """A request with parameters that the server cannot make text of."""

    def parameters():
        return b"\xff".decode()

    request.parameters = parameters
    return request


def test_a_request_whose_parameters_are_no_text_fails_alone(link):
    link.serve(lambda requests: [{"y": request["x"]} for request in requests])
    bad = no_text(server_request())
    good, failed, good_too = link.model.execute([server_request(), bad, server_request()])
    assert not good.has_error()
    assert not good_too.has_error()
    assert failed.error.code == "invalid argument"
    assert "UTF-8" in failed.error.message
    assert len(link.workers[0]._connections) == 1


def test_a_streamed_request_whose_parameters_are_no_text_fails_alone(serve):
    link = serve(lambda requests: [{"y": request["x"]} for request in requests], config=CONFIG, batches_in_flight=1)
    for _ in range(3):  # the place among the batches in flight is given back
        requests = [server_request(), no_text(server_request()), server_request()]
        link.model.execute(requests)
        assert answers(requests[0]) == answers(requests[2]) == [{"y": [[1, 2]]}]
        assert "UTF-8" in answers(requests[1])[0]


def test_an_id_that_is_no_text_is_left_out():
    request = server_request(mine=1)
    request.request_id = lambda: b"\xff".decode()
    assert json.loads(encode_details([request], len(OUTPUTS), traced=False)[0]) == {"0": {"parameters": {"mine": 1}}}


def with_parameters(text, **options):
    """The parameters that a callable gets of a request that the server describes so."""
    metadata = b'{"0":{"id":"a","parameters":' + text + b"}}"
    frame = Frame(REQUEST, 1, 1, [1], metadata)
    return requests_of(frame, ["x"], OUTPUTS, **options)[0].parameters


def test_the_last_of_a_name_counts_in_any_letter_case_where_headers_are_forwarded():
    text = b'{"X-User":"forged","x-USER":"forged","a":1,"X-User":"ada"}'
    assert with_parameters(text, forwards_headers=True) == {"a": 1, "X-User": "ada"}
    text = b'{"X-User":"forged","x-user":"ada"}'
    assert with_parameters(text, forwards_headers=True) == {"x-user": "ada"}


def test_letter_case_tells_parameters_apart_where_no_headers_are_forwarded():
    assert with_parameters(b'{"t":1,"T":2}') == {"t": 1, "T": 2}
