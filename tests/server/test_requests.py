"""What besides tensors reaches a callable: parameters, forwarded headers, the outputs that clients want."""

from functools import partial

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.model_config import Tensor
from tests.server.arrays import filled
from tests.server.conftest import FORWARDED_RESERVED_HEADERS
from tests.server.raw import post
from tests.server.traffic import Gate, batches_of

OUTPUTS = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("y", "z", "w")]


def answers_to(requests):
    return [{"w": request["x"] + 3, "y": request["x"] + 1, "z": request["x"] + 2} for request in requests]


@pytest.fixture(scope="module")
def log(bind):
    """A model that keeps its requests."""

    class Log(list):
        def __call__(self, requests):
            self.extend(requests)
            return answers_to(requests)

    log = Log()
    log.model = bind(log, outputs=OUTPUTS)
    return log


@pytest.fixture(autouse=True)
def _forgotten(log):
    log.clear()


def test_parameters_arrive_with_their_types(log, traffic):
    parameters = {"text": "zażółć \" ' {}", "empty": "", "number": -3, "large": 2**53, "yes": True, "no": False}
    traffic.infer(log.model, filled(1), parameters=parameters)
    assert log[0].parameters == parameters
    assert {name: type(value) for name, value in log[0].parameters.items()} == {
        name: type(value) for name, value in parameters.items()
    }


def test_forwarded_headers_arrive_as_text_among_the_parameters(log, traffic):
    headers = {"x-tenant": "blue", "x-count": 3, "other": "not forwarded"}
    traffic.infer(log.model, filled(1), parameters={"a": 1}, headers=headers)
    assert log[0].parameters == {"a": 1, "x-tenant": "blue", "x-count": "3"}


@pytest.mark.parametrize("names", [["x-user"], ["X-User"], ["X-USER", "x-User", "x-user"], ["x-user", "X-User"]])
def test_a_header_wins_over_parameters_of_its_name_in_any_spelling(log, traffic, names):
    forged = dict.fromkeys(names, "forged")
    traffic.infer_bare(log.model, {"x": filled(1)}, parameters={**forged, "a": 1}, headers={"x-user": "ada"})
    assert log[0].parameters == {"a": 1, "x-user": "ada"}


@pytest.mark.parametrize("header", ["x-user", "X-User", "X-USER"])
def test_a_header_keeps_its_spelling_over_http(log, triton_config, header):
    forged = ["x-user", "X-User", "X-uSER"]
    fields = '"parameters":{' + ",".join(f'"{name}":"forged"' for name in forged) + "}"
    assert post(triton_config, log.model, fields.encode(), {header: "ada"})[0] == 200
    assert log[0].parameters == {header: "ada"}


def test_a_request_without_parameters_has_an_empty_dict_of_them(log, traffic):
    traffic.infer(log.model, filled(1))
    assert log[0].parameters == {}


def test_names_that_only_the_server_needs_do_not_arrive(log, traffic):
    options = {"sequence_id": 7, "sequence_start": True, "sequence_end": True, "priority": 1, "timeout": 30_000_000}
    headers = dict.fromkeys(FORWARDED_RESERVED_HEADERS, "forwarded too")
    traffic.infer_bare(log.model, {"x": filled(1)}, parameters={"mine": 1}, headers=headers, **options)
    assert log[0].parameters == {"mine": 1}


def test_parameters_of_merged_requests_stay_with_their_requests(bind, traffic):
    gate, seen = Gate(), []

    def echo(requests):
        gate.wait()
        seen.append([(request["x"][0, 0], request.parameters) for request in requests])
        return [{"y": request["x"] * request.parameters.get("factor", 1)} for request in requests]

    model = bind(echo, max_batch_size=8, batcher=batches_of(4))
    given = [{}, {"factor": 2}, {}, {"factor": 3, "more": "text"}, {}]
    inputs = [filled(n, 1 if n else 4) for n in range(5)]
    calls = [
        partial(traffic.infer, model, x, parameters=parameters) for x, parameters in zip(inputs, given, strict=True)
    ]
    answers = traffic.merge(model, gate, calls)
    assert [answer.result()["y"][0, 0] for answer in answers] == [0, 2, 2, 9, 4]
    assert seen == [[(0, {})], list(enumerate(given))[1:]]


def test_all_outputs_are_wanted_when_the_client_names_none(log, traffic):
    answer = traffic.infer_bare(log.model, {"x": filled(1)})
    assert sorted(answer) == ["w", "y", "z"]
    assert log[0].requested_output_names == ["y", "z", "w"]


@pytest.mark.parametrize("wanted", [["z"], ["w", "y"]])
def test_only_wanted_outputs_come_back(log, traffic, wanted):
    answer = traffic.infer_bare(log.model, {"x": filled(1)}, wanted)
    assert {name: array[0, 0] for name, array in answer.items()} == {
        name: {"y": 2, "z": 3, "w": 4}[name] for name in wanted
    }
    assert sorted(log[0].requested_output_names) == sorted(wanted)


def test_a_callable_may_compute_wanted_outputs_alone(bind, traffic):
    def infer(requests):
        return [dict.fromkeys(request.requested_output_names, request["x"]) for request in requests]

    model = bind(infer, outputs=OUTPUTS)
    assert list(traffic.infer_bare(model, {"x": filled(1)}, ["z"])) == ["z"]
    assert sorted(traffic.infer_bare(model, {"x": filled(1)})) == ["w", "y", "z"]


def wanting(traffic, model, wanted):
    """Requests of one row each, after a first one of four."""
    inputs = [filled(n, 1 if n else 4) for n in range(len(wanted))]
    return [partial(traffic.infer_bare, model, {"x": x}, names) for x, names in zip(inputs, wanted, strict=True)]


@pytest.mark.parametrize("decorated", [False, True], ids=["requests", "batch"])
def test_merged_requests_may_want_different_outputs(bind, traffic, decorated):
    gate, sizes = Gate(), []

    def plain(requests):
        gate.wait()
        sizes.append(sum(len(request["x"]) for request in requests))
        return answers_to(requests)

    @batch
    def columns(x):
        gate.wait()
        sizes.append(len(x))
        return [x + 1, x + 2, x + 3]

    model = bind(columns if decorated else plain, outputs=OUTPUTS, max_batch_size=8, batcher=batches_of(4))
    wanted = [None, ["z"], None, ["y", "w"], ["w"]]
    answers = traffic.merge(model, gate, wanting(traffic, model, wanted))
    for n, (names, answer) in enumerate(zip(wanted, answers, strict=True)):
        got = {name: array[0, 0] for name, array in answer.result().items()}
        assert got == {name: n + {"y": 1, "z": 2, "w": 3}[name] for name in names or ("y", "z", "w")}
    assert sizes == [4, 4]


def test_a_wrapper_may_read_parameters_and_call_a_decorated_function(bind, traffic):
    @batch
    def scaled(x, factor):
        return [x * factor]

    def infer(requests):
        for request in requests:
            request["factor"] = np.full((len(request["x"]), 1), request.parameters["factor"], np.float32)
        return scaled(requests)

    assert traffic.infer(bind(infer), filled(2), parameters={"factor": 5})["y"].tolist() == [[10] * 4]


def test_a_callable_may_replace_and_remove_inputs(bind, traffic):
    def infer(requests):
        for request in requests:
            request["renamed"] = request["x"] + 1
            del request["x"]
        return [{"y": request["renamed"]} for request in requests]

    assert traffic.infer(bind(infer), filled(2))["y"].tolist() == [[3] * 4]
