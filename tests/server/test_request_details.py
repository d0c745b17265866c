"""What a callable gets to know of a request beside its inputs."""

import time

import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from pytriton.client import ModelClient
from pytriton.decorators import batch, with_requests
from tests.server.arrays import filled
from tests.server.proxies import HAS_EDGE
from tests.server.raw import post


class Seen(list):
    """Doubles, and keeps its requests."""

    def __call__(self, requests):
        self.extend(requests)
        return [{"y": request["x"] * 2} for request in requests]


@pytest.fixture(scope="module")
def bound_seen(bind):
    seen = Seen()
    seen.model = bind(seen)
    return seen


@pytest.fixture
def seen(bound_seen):
    bound_seen.clear()
    return bound_seen


@pytest.mark.parametrize("request_id", ["a", "17", 'quotes " and \\ ☃'])
def test_the_request_id_arrives(api, seen, request_id):
    api.infer(seen.model, {"x": filled(1)}, request_id=request_id)
    assert seen[0].request_id == request_id


def test_a_bare_request_has_no_id_no_deadline_and_no_sequence(api, seen):
    api.infer(seen.model, {"x": filled(1)})
    (request,) = seen
    assert (request.request_id, request.deadline) == ("", None)
    assert (request.correlation_id, request.sequence_start, request.sequence_end) == (None, False, False)


def test_our_own_clients_number_their_requests(url, seen):
    with ModelClient(url, seen.model) as client:
        for _ in range(3):
            client.infer_batch(filled(1))
    assert len({request.request_id for request in seen} - {""}) == 3


@pytest.mark.parametrize("sequence", [7, 2**63 - 1, "a text", "7"])
@pytest.mark.parametrize(("start", "end"), [(True, False), (False, True), (True, True), (False, False)])
def test_the_correlation_id_and_its_flags_arrive(api, seen, sequence, start, end):
    options = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
    api.infer(seen.model, {"x": filled(1)}, **options)
    (request,) = seen
    assert (request.correlation_id, request.sequence_start, request.sequence_end) == (sequence, start, end)


def test_the_timeout_becomes_a_deadline(api, seen):
    before = time.monotonic()
    api.infer(seen.model, {"x": filled(1)}, timeout=60_000_000)
    assert before + 60 <= seen[0].deadline <= time.monotonic() + 60


@pytest.mark.skipif(not HAS_EDGE, reason="Triton keeps the deadline of a call to itself")
def test_the_deadline_of_a_grpc_call_arrives_unless_the_request_has_a_timeout(triton_config, seen):
    before = time.monotonic()
    with InferenceServerClient(f"127.0.0.1:{triton_config.grpc_port}") as client:
        tensor = InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(filled(1))
        client.infer(seen.model, [tensor], client_timeout=60)
        client.infer(seen.model, [tensor], client_timeout=60, timeout=600_000_000)
    (first, second) = seen
    assert before < first.deadline <= time.monotonic() + 61  # gRPC rounds up
    assert before + 600 <= second.deadline


def test_details_and_parameters_of_merged_requests_are_not_mixed_up(gated, traffic):
    requests = []
    answer = gated.__class__.__call__
    calls = [
        lambda n=n: traffic.infer_bare(gated.model, {"x": filled(n)}, request_id=f"id-{n}", parameters={"n": n})
        for n in range(5)
    ]

    class Keeping(type(gated)):
        def __call__(self, batch):
            requests.extend(batch)
            return answer(self, batch)

    gated.__class__ = Keeping
    traffic.merge(gated.model, gated.gate, calls)
    assert [(request.request_id, request.parameters) for request in requests] == [
        (f"id-{int(request['x'][0, 0])}", {"n": int(request["x"][0, 0])}) for request in requests
    ]
    assert len(requests) == 5


def test_an_id_that_is_no_text_is_refused_or_as_good_as_none(triton_config, seen):
    status, body = post(triton_config, seen.model, b'"id":"\xff"')
    if HAS_EDGE:
        assert (status, b"UTF8" in body) == (400, True)
    else:
        assert (status, seen[0].request_id) == (200, "")


def test_parameters_that_are_no_text_are_refused_and_the_next_request_is_served(triton_config, seen):
    status, body = post(triton_config, seen.model, b'"parameters":{"name":"\xff"}')
    assert status == 400
    assert b"UTF-8" in body
    assert post(triton_config, seen.model, b'"id":"good"')[0] == 200


def test_a_callable_below_batch_gets_its_requests_where_it_asks_for_them(bind, traffic):
    @with_requests
    @batch
    def scaled(x, requests):
        return {"y": x * requests[0].parameters["factor"]}

    answer = traffic.infer(bind(scaled), filled(2), parameters={"factor": 3})
    assert answer["y"][0, 0] == 6
