"""Requests to models of a server within this process, and their responses."""

from __future__ import annotations

import json
import queue
import re
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton.inprocess import (
    AlreadyExistsError,
    CancelledError,
    DataType,
    InferenceRequest,
    InternalError,
    InvalidArgumentError,
    MemoryBuffer,
    Model,
    NotFoundError,
    Server,
    Tensor,
    TritonError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)
from pytriton.inprocess.native import in_flight
from tests.server.inprocess_echo import echoed
from tests.server.inprocess_repository import HEAD, write_echo, write_model
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]
ONE = 'input { name: "x" data_type: TYPE_INT32 dims: [1] }\noutput { name: "y" data_type: TYPE_INT32 dims: [1] }\n'
TOLD = 'output { name: "told" data_type: TYPE_STRING dims: [1] }'
FLOATS = MemoryBuffer.from_array(np.ones(2, np.float32))
COUNTER = f"""{HEAD}
        for request in requests:
            sender = request.get_response_sender()
            x = get(request, "x").as_numpy()
            for number in range(x[0]):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x * 0 + number)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TELLER = f"""{HEAD}
        import json
        import numpy as np
        responses = []
        for request in requests:
            if get(request, "x").as_numpy()[0] < 0:
                responses.append(pb_utils.InferenceResponse([], pb_utils.TritonError("negative on purpose")))
                continue
            told = {{"id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                    "timeout": request.timeout(), "parameters": json.loads(request.parameters())}}
            told = np.array([json.dumps(told).encode()], np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("told", told)]))
        return responses
"""
REFUSER = f"""{HEAD}
        import json
        code = json.loads(requests[0].parameters())["code"]
        error = pb_utils.TritonError(f"refused as {{code}}", getattr(pb_utils.TritonError, code))
        return [pb_utils.InferenceResponse([], error) for _ in requests]
"""
WAITER = f"""{HEAD}
        for request in requests:
            while not request.is_cancelled():
                time.sleep(0.002)
        return [pb_utils.InferenceResponse([], pb_utils.TritonError("noticed", pb_utils.TritonError.CANCELLED))
                for _ in requests]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("repository")
    write_echo(repository)
    write_model(repository, "counter", COUNTER, f"{ONE}model_transaction_policy {{ decoupled: true }}")
    write_model(repository, "teller", TELLER, ONE + TOLD)
    write_model(repository, "refuser", REFUSER, ONE)
    write_model(repository, "waiter", WAITER, ONE)
    with Server(model_repository=str(repository)) as server:
        yield server


@pytest.fixture
def echo(server: Server) -> Model:
    return server.model("echo")


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("BOOL", np.array([[True, False]])),
        ("INT8", np.array([[-1, 2], [3, 4]], np.int8)),
        ("INT64", np.array([[1 << 60]])),
        ("UINT16", np.array([[1, 65535]], np.uint16)),
        ("FP16", np.array([[0.5]], np.float16)),
        ("FP32", np.arange(12, dtype=np.float32).reshape(4, 3)),
        ("FP64", np.array([[np.pi]])),
    ],
)
def test_arrays_come_back_as_they_went(echo: Model, dtype: str, array: Any):
    tensor = echoed(echo, dtype, array)
    assert tensor.data_type == DataType[dtype]
    back = np.from_dlpack(tensor)
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()
    assert back.shape == tensor.shape == array.shape


def test_lists_scalars_and_other_memory_orders_are_taken(echo: Model):
    matrix = np.arange(6, dtype=np.float64).reshape(2, 3)
    assert np.from_dlpack(echoed(echo, "FP64", [[1.0, 2.0]])).tolist() == [[1, 2]]
    assert np.from_dlpack(echoed(echo, "FP64", matrix.T)).tolist() == matrix.T.tolist()
    assert np.from_dlpack(echoed(echo, "FP64", matrix[:, ::2])).tolist() == matrix[:, ::2].tolist()
    assert np.from_dlpack(echoed(echo, "FP64", matrix.astype(">f8"))).tolist() == matrix.tolist()
    with pytest.raises(TritonError, match="shape"):
        echo.infer(inputs={"in_FP64": np.float64(3)})


def test_read_only_arrays_are_taken(echo: Model):
    array = np.arange(5, dtype=np.float32).reshape(1, 5)
    for given in (array.view(), np.frombuffer(array.tobytes(), np.float32).reshape(1, 5)):
        given.flags.writeable = False
        assert np.from_dlpack(echoed(echo, "FP32", given)).tolist() == array.tolist()
    assert array.flags.writeable


def test_texts_and_bytes_come_back(echo: Model):
    given = np.array([["grün", "", "x" * 300]], np.object_)
    tensor = echoed(echo, "STRING", given)
    assert tensor.to_string_array().tolist() == given.tolist()
    assert tensor.to_bytes_array().tolist() == [[text.encode() for text in given[0]]]
    assert echoed(echo, "STRING", [[b"a\0b", b"\xff"]]).to_bytes_array()[0, 1] == b"\xff"


def test_an_empty_tensor_comes_back(echo: Model):
    assert np.from_dlpack(echoed(echo, "FP32", np.empty((1, 0), np.float32))).shape == (1, 0)
    assert echoed(echo, "STRING", np.empty((1, 0), np.object_)).to_bytes_array().shape == (1, 0)


def test_an_output_may_be_an_input(echo: Model):
    first = echoed(echo, "STRING", [["a", "bc"]])
    assert echoed(echo, "STRING", first).to_string_array().tolist() == [["a", "bc"]]


def test_a_tensor_of_another_library_is_taken(echo: Model):
    class Foreign:
        def __init__(self) -> None:
            self.array = np.array([[1, 2]], np.float32)

        def __dlpack__(self, stream: Any = None) -> Any:
            return self.array.__dlpack__()

    assert np.from_dlpack(echoed(echo, "FP32", Foreign())).tolist() == [[1, 2]]


def test_a_response_says_which_model_gave_it(echo: Model):
    (response,) = echo.infer(inputs={"in_FP32": np.ones((1, 1), np.float32)}, request_id="mine")
    assert (response.model.name, response.model.version) == ("echo", 1)
    assert echo.version == -1
    assert response.request_id == "mine"
    assert response.final
    assert response.error is None
    assert response.classification_label is None


def test_a_request_without_an_id_gets_a_response_without_one(echo: Model):
    (response,) = echo.infer(inputs={"in_FP32": np.ones((1, 1), np.float32)})
    assert response.request_id == ""
    assert response.parameters == {}


def test_responses_of_one_model_may_differ_in_all_that_they_say(echo: Model):
    ids = ["", "a", "b"]
    arrays = [np.full(shape, 7, dtype) for shape in [(1, 2), (2, 2), (2, 1)] for dtype in (np.float32, np.int64)]
    for number in range(2 * len(arrays) * len(ids)):
        array, request_id = arrays[number % len(arrays)] + number, ids[number % len(ids)]
        name = "FP32" if array.dtype == np.float32 else "INT64"
        (response,) = echo.infer(inputs={f"in_{name}": array}, request_id=request_id or None)
        back = np.from_dlpack(response.outputs[f"out_{name}"])
        assert (response.request_id, response.final, response.parameters) == (request_id, True, {})
        assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())


def test_responses_that_are_alike_share_nothing_that_can_be_changed(echo: Model):
    inputs = {"in_FP32": np.ones((1, 1), np.float32)}
    for _ in range(3):
        (response,) = echo.infer(inputs=inputs)
        assert (response.parameters, [*response.outputs]) == ({}, ["out_FP32"])
        response.outputs.clear()
        response.parameters["a"] = 1


def test_an_iterator_may_be_dropped_before_its_responses(server: Server):
    before = {*in_flight}
    array = np.array([5], np.int32)
    gone = weakref.ref(array)
    server.model("counter").infer(inputs={"x": array})
    del array
    wait_for(lambda: gone() is None and in_flight.keys() <= before, "the request to go")


def test_the_details_of_a_request_reach_the_model(server: Server):
    parameters: dict[str, Any] = {"text": "ä", "number": -5, "flag": True, "real": 0.5}
    (response,) = server.model("teller").infer(
        inputs={"x": np.array([1], np.int32)},
        request_id="r",
        correlation_id=77,
        flags=1,
        timeout=5_000_000,
        priority=1,
        parameters=parameters,
    )
    told = json.loads(response.outputs["told"].to_string_array()[0])
    assert told == {"id": "r", "correlation": 77, "flags": 1, "timeout": 5_000_000, "parameters": parameters}


def test_a_correlation_id_may_be_a_text(server: Server):
    (response,) = server.model("teller").infer(inputs={"x": np.array([1], np.int32)}, correlation_id="sequence")
    assert '"correlation": "sequence"' in response.outputs["told"].to_string_array()[0]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_decoupled_model_gives_any_number_of_responses_and_an_empty_last_one(server: Server, count: int):
    *responses, last = server.model("counter").infer(inputs={"x": np.array([count], np.int32)})
    assert [np.from_dlpack(each.outputs["y"])[0] for each in responses] == [*range(count)]
    assert not any(each.final for each in responses)
    assert last.final
    assert last.outputs == {}
    assert last.model.name == "counter"


def test_an_error_is_raised_with_its_response(server: Server):
    responses = server.model("teller").infer(inputs={"x": np.array([-1], np.int32)})
    with pytest.raises(InternalError, match="negative on purpose") as caught:
        next(responses)
    assert caught.value.args[-1].final
    assert caught.value.args[-1].outputs == {}
    assert [*responses] == []


@pytest.mark.parametrize(
    "kind",
    [
        UnknownError,
        InternalError,
        NotFoundError,
        InvalidArgumentError,
        UnavailableError,
        UnsupportedError,
        AlreadyExistsError,
        CancelledError,
    ],
)
def test_each_code_of_an_error_has_a_class(server: Server, kind: type[TritonError]):
    code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).upper()
    code = {"INVALID_ARGUMENT": "INVALID_ARG"}.get(code, code)
    with pytest.raises(TritonError) as caught:
        next(server.model("refuser").infer(inputs={"x": [np.int32(1)]}, parameters={"code": code}))
    assert type(caught.value) is kind
    assert str(caught.value) == f"refused as {code}"


def test_an_error_is_given_if_it_is_not_to_be_raised(server: Server):
    (response,) = server.model("teller").infer(inputs={"x": np.array([-1], np.int32)}, raise_on_error=False)
    assert isinstance(response.error, InternalError)
    assert response.final


def test_a_request_may_be_sent_again(echo: Model):
    request = echo.create_request(inputs={"in_FP32": np.array([[1]], np.float32)}, model="ignored")
    assert isinstance(request, InferenceRequest)
    first = echo.infer(request)
    request.inputs = {"in_FP32": np.array([[2]], np.float32)}
    second = echo.infer(request)
    values = [np.from_dlpack(next(each).outputs["out_FP32"])[0, 0] for each in (first, second)]
    assert values == [1, 2]


def test_an_unknown_model_is_refused_at_once(server: Server):
    with pytest.raises((NotFoundError, UnavailableError, InvalidArgumentError), match="other"):
        server.model("other").infer(inputs={})
    with pytest.raises((NotFoundError, UnavailableError, InvalidArgumentError), match="echo"):
        server.model("echo", 5).infer(inputs={})


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": {"other": np.ones((1, 1), np.float32)}},
        {"inputs": {"in_FP32": np.ones((1, 1), np.complex64)}},
        {"inputs": {"in_FP32": object()}},
        {"inputs": {"in_STRING": [[object()]]}},
        {"inputs": [1]},
        {"inputs": {"in_FP32": [[1.0], [2.0, 3.0]]}},
        {"parameters": {"key": []}},
        {"parameters": ["key"]},
        {"parameters": {"key": 1 << 63}},
        {"flags": "x"},
        {"priority": -1},
        {"correlation_id": -1},
        {"timeout": 1.5},
        {"request_id": 3},
        {"output_memory_type": "tpu"},
        {"output_memory_type": "gpu"},
        {"response_queue": []},
        {"request_id": "a\0b"},
        {"correlation_id": 1.0},
        {"correlation_id": np.float64(1)},
        {"parameters": {"key": np.datetime64("2020")}},
        {"output_memory_allocator": 3},
        {"inputs": {3: [[1.0]]}},
        {"inputs": {"in_FP32": Tensor(DataType.FP32, 3, FLOATS)}},
        {"inputs": {"in_FP32": Tensor(DataType.FP32, (1, 2.0), FLOATS)}},
        {"inputs": {"in_FP32": Tensor(DataType.FP32, (1, 2), None)}},
        {"inputs": {"in_FP32": Tensor(DataType.FP32, (1, 3), FLOATS)}},
        {"inputs": {"in_FP32": Tensor(DataType.FP32, (-1, -2), FLOATS)}},
        {"inputs": {"in_FP32": Tensor(DataType.FP32, (1, 1 << 62), MemoryBuffer(FLOATS.data_ptr, 0, 0, 0, None))}},
        {"inputs": {"in_FP32": Tensor(99, (1, 2), FLOATS)}},
        {"inputs": {"in_FP32": Tensor("FP32", (1, 2), FLOATS)}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_wrong_with_a_request_is_said_when_it_is_sent(echo: Model, wrong: dict[str, Any]):
    inputs = {"in_FP32": np.ones((1, 1), np.float32)}
    with pytest.raises(InvalidArgumentError):
        echo.infer(**{"inputs": inputs, **wrong})
    assert np.from_dlpack(echoed(echo, "FP32", inputs["in_FP32"])).tolist() == [[1]]


def test_each_response_goes_to_the_callers_queue_too(server: Server):
    both: queue.SimpleQueue[Any] = queue.SimpleQueue()
    responses = [*server.model("counter").infer(inputs={"x": np.array([2], np.int32)}, response_queue=both)]
    assert [both.get_nowait() for _ in range(3)] == responses


@pytest.mark.parametrize("copies", [None, queue.SimpleQueue()], ids=["", "with a queue"])
def test_threads_share_the_responses_to_a_request(server: Server, copies: Any):
    responses = server.model("counter").infer(inputs={"x": np.array([5], np.int32)}, response_queue=copies)
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threads = [threading.Thread(target=lambda: [found.put(each) for each in responses], daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    got = [found.get_nowait() for _ in range(6)]
    assert found.empty()
    assert sum(response.final for response in got) == 1


def test_scalars_of_numpy_are_taken_for_those_of_python(server: Server):
    model = server.model(np.str_("teller"), np.int64(-1))
    (response,) = model.infer(
        request_id=np.str_("id"),
        correlation_id=np.uint64(7),
        flags=np.int32(3),
        priority=np.uint8(0),
        timeout=np.int64(0),
        inputs={"x": np.array([1], np.int32)},
        parameters={"i": np.int64(-5), "b": np.bool_(True), "f": np.float32(0.5), "s": np.str_("t")},
    )
    told = json.loads(response.outputs["told"].to_bytes_array()[0])
    assert (told["id"], told["correlation"], told["flags"]) == ("id", 7, 3)
    assert told["parameters"] == {"i": -5, "b": True, "f": 0.5, "s": "t"}


def test_nuls_at_the_end_of_byte_strings_come_back(echo: Model):
    tensor = echoed(echo, "STRING", [[b"ab\0", b"\0\0"]])
    assert tensor.to_bytes_array().tolist() == [[b"ab\0", b"\0\0"]]


def test_a_cancelled_request_ends(server: Server):
    responses = server.model("waiter").infer(inputs={"x": np.array([1], np.int32)}, raise_on_error=False)
    responses.cancel()
    (response,) = responses
    assert isinstance(response.error, TritonError)


def test_cancelling_an_answered_request_does_nothing(echo: Model):
    responses = echo.infer(inputs={"in_FP32": np.ones((1, 1), np.float32)})
    assert next(responses).error is None
    responses.cancel()
    assert [*responses] == []


def test_a_thousand_requests_may_be_in_flight_at_once(echo: Model):
    values = [np.full((1, 1), number, np.float32) for number in range(1000)]
    pending = [echo.infer(inputs={"in_FP32": value}) for value in values]
    results = [np.from_dlpack(next(each).outputs["out_FP32"])[0, 0] for each in pending]
    assert results == [*range(1000)]


def test_threads_get_their_own_responses(echo: Model):
    barrier = threading.Barrier(8)

    def call(number: int) -> bool:
        barrier.wait()
        array = np.full((1, 3), number, np.int64)
        return all(np.array_equal(np.from_dlpack(echoed(echo, "INT64", array)), array) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))


def test_a_stop_waits_for_the_requests_in_flight(tmp_path: Path):
    write_echo(tmp_path)
    server = Server(model_repository=str(tmp_path)).start()
    model = server.model("echo")
    pending = [model.infer(inputs={"in_FP32": np.ones((1, 1), np.float32)}) for _ in range(50)]
    server.stop()
    assert all(next(each).error is None for each in pending)
