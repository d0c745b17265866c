"""The model that Triton's Python backend runs, between a scripted backend and a real worker on a real socket."""

import os
import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from copy import copy
from importlib import import_module

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.proxy.types import RequestBatch
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.connect import PROTOCOL, accept, short_path
from pytriton.wire.frames import ERROR, RESPONSE, Frame
from pytriton.wire.tensors import tensor
from pytriton.worker.instance import listening
from tests.server.processes import DEADLINE_S
from tests.unit.backend import InferenceRequest
from tests.unit.links import BOTH, CONFIG, Link

X = [np.array([[1, 2]], np.float32), np.array([[3, 4], [5, 6]], np.float32)]
LARGE = [np.full((1, 20_000), 7, np.float32), np.full((2, 20_000), 8, np.float32)]


@pytest.fixture(params=[False, True], ids=["", "relayed"])
def link(proxy_model, tmp_path, request):
    link = Link(proxy_model, tmp_path, relayed=request.param)
    yield link
    link.end()


@batch
def double(x, s=None):
    return {"y": x * 2, **({} if s is None else {"z": s})}


@pytest.mark.parametrize("arrays", [X, LARGE], ids=["small", "large"])
def test_requests_of_one_shape_are_merged_and_get_their_rows_back(link, arrays):
    seen = []

    def function(requests):
        seen.append(isinstance(requests, RequestBatch) and requests.columns()["x"].shape)
        return double(requests)

    link.serve(function)
    for _ in range(3):
        answers = link.infer({"x": arrays[0]}, {"x": arrays[1]}, {"x": arrays[0]})
        assert answers == [{"y": (x * 2).tolist()} for x in (*arrays, arrays[0])]
    assert seen == [(4, arrays[0].shape[1])] * 3


def test_strings_and_numbers_travel_together(link):
    link.serve(double, BOTH)
    s = [np.array([[b"a\0", b""]], object), np.array([["ä".encode(), b"b"]] * 2, object)]
    assert link.infer({"x": X[0], "s": s[0]}, {"x": X[1], "s": s[1]}) == [
        {"y": [[2, 4]], "z": [[b"a\0", b""]]},
        {"y": [[6, 8], [10, 12]], "z": [["ä".encode(), b"b"]] * 2},
    ]


def test_the_order_of_a_requests_inputs_does_not_matter(link):
    seen = []
    link.serve(lambda requests: [seen.append(list(request)) or {} for request in requests])
    s = np.array([[b"a"]], object)
    link.infer({"s": s, "x": X[0]}, {"x": X[0], "s": s})
    assert seen == [["x", "s"]] * 2


def test_requests_of_different_shapes_are_answered_each(link):
    seen = []

    def function(requests):
        seen.append(isinstance(requests, RequestBatch))
        return [{"y": request["x"] * 2} for request in requests]

    link.serve(function)
    wide = np.ones((1, 3), np.float32)
    assert link.infer({"x": X[0]}, {"x": wide}) == [{"y": [[2, 4]]}, {"y": [[2, 2, 2]]}]
    assert seen == [False]


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_request_may_lack_an_optional_input_that_another_has(link, lacking):
    seen = []
    link.serve(lambda requests: [seen.append(list(request)) or {"y": request["x"]} for request in requests])
    requests = [{"x": X[0], "s": np.array([[b"a"]], object)}, {"x": X[0], "s": np.array([[b"b"]], object)}]
    del requests[lacking]["s"]
    assert link.infer(*requests) == [{"y": [[1, 2]]}] * 2
    assert seen == [list(request) for request in requests]


def test_an_optional_input_that_all_lack_leaves_one_block(link):
    seen = []
    link.serve(lambda requests: seen.append(list(requests.columns())) or double(requests))
    assert link.infer({"x": X[0]}, {"x": X[0]}) == [{"y": [[2, 4]]}] * 2
    assert seen == [["x"]]


def test_requests_without_any_input_are_answered(link):
    link.serve(lambda requests: [{"y": np.full((1, 1), len(request), np.float32)} for request in requests])
    assert link.infer({}, {}) == [{"y": [[0]]}] * 2


def test_inputs_of_a_request_that_differ_in_rows_reach_the_callable_as_sent(link):
    seen = []
    link.serve(lambda requests: [seen.append([len(array) for array in request.values()]) or {} for request in requests])
    link.infer({"x": X[1], "s": np.array([[b"a"]], object)})
    assert seen == [[2, 1]]


def test_a_model_without_batching_gets_arrays_as_they_are(link):
    config = TritonModelConfig("m", batching=False, inputs=CONFIG.inputs[:1], outputs=CONFIG.outputs[:1])
    link.serve(lambda requests: [{"y": requests[0]["x"].sum(keepdims=True)}], config)
    assert link.infer({"x": np.arange(4, dtype=np.float32)}, outputs=["y"]) == [{"y": [6]}]


def test_parameters_reach_the_callable(link):
    seen = []
    link.serve(lambda requests: [seen.append(request.parameters) or {} for request in requests])
    link.model.execute([InferenceRequest({"x": X[0]}), InferenceRequest({"x": X[0]}, text="ä", flag=True, timeout=3)])
    assert seen == [{}, {"text": "ä", "flag": True}]


def test_only_wanted_outputs_are_sent(link):
    s = np.array([[b"a"]], object)
    link.serve(double, BOTH)
    wanted = [InferenceRequest({"x": X[0], "s": s}, outputs) for outputs in (["z"], ["y", "z"], ["y"])]
    assert [list(response.outputs) for response in link.model.execute(wanted)] == [["z"], ["y", "z"], ["y"]]


def test_an_exception_value_fails_its_request_alone(link):
    link.serve(lambda requests: [{"y": requests[0]["x"]}, ValueError("not you")])
    assert link.infer({"x": X[0]}, {"x": X[0]}) == [{"y": [[1, 2]]}, "ValueError: not you"]


def test_only_the_request_at_fault_fails_when_a_merged_call_raises(link):
    calls = []

    @batch
    def picky(x):
        calls.append(len(x))
        if (x == 5).any():
            raise ValueError("five")
        return {"y": x}

    link.serve(picky)
    answers = link.infer({"x": X[0]}, {"x": X[1]}, {"x": X[0]})
    assert answers == [{"y": [[1, 2]]}, "ValueError: five", {"y": [[1, 2]]}]
    assert calls == [4, 1, 2, 1]


def test_all_merged_requests_fail_without_isolation(link):
    calls = []
    link.serve(lambda requests: calls.append(len(requests)) or 1 / 0, isolate_errors=False)
    assert link.infer({"x": X[0]}, {"x": X[1]}) == ["ZeroDivisionError: division by zero"] * 2
    assert calls == [2]


def test_an_error_is_internal_and_the_next_batch_is_served(link):
    link.serve(batch(lambda x: {"y": x} if x[0, 0] == 1 else 1 / 0))
    (response,) = link.model.execute([InferenceRequest({"x": X[1]})])
    assert response.error.code == "internal"
    assert link.infer({"x": X[0]}) == [{"y": [[1, 2]]}]


def test_inputs_that_cannot_travel_fail_their_batch_alone(link):
    link.serve(double)
    strings = np.array([[b"a", 1]], object)
    assert link.infer({"x": X[0], "s": strings}) == ["a bytes tensor holds int; give bytes or str"]
    assert link.infer({"x": X[0]}) == [{"y": [[2, 4]]}]


@pytest.mark.parametrize("arrays", [X, LARGE], ids=["small", "large"])
def test_without_a_worker_requests_are_unavailable_and_a_new_worker_is_found(link, arrays, monkeypatch):
    link.serve(double)
    assert link.infer({"x": arrays[0]}) == [{"y": (arrays[0] * 2).tolist()}]
    link.end_worker()
    with monkeypatch.context() as patch:
        patch.setattr(import_module("pytriton.wire.connect"), "RECONNECT_TIMEOUT_S", 0.0)
        for _ in range(3):
            responses = link.model.execute([InferenceRequest({"x": x}) for x in arrays])
            assert [response.error.code for response in responses] == ["unavailable"] * 2
            assert "the inference callable's process is gone" in responses[0].error.message
    link.work(batch(lambda x: {"y": x * 3}))
    assert link.infer({"x": arrays[1]}) == [{"y": (arrays[1] * 3).tolist()}]


@pytest.mark.parametrize("arrays", [X, LARGE], ids=["small", "large"])
def test_a_batch_that_finds_its_worker_replaced_is_served_by_the_new_one(link, arrays):
    link.serve(double)
    link.end_worker()
    link.work(batch(lambda x: {"y": x * 3}))
    assert link.infer({"x": arrays[0]}) == [{"y": (arrays[0] * 3).tolist()}]


def test_a_model_without_a_worker_does_not_load(link, monkeypatch):
    monkeypatch.setattr(import_module("pytriton.wire.connect"), "CONNECT_TIMEOUT_S", 0.05)
    with pytest.raises(ConnectionError, match="the process with the inference callable does not answer"):
        link.connect()


def test_the_worker_notices_when_the_model_is_unloaded(link):
    link.serve(double)
    assert link.workers[0].is_connected()
    link.model.finalize()
    assert link.workers[0].wait_disconnected(DEADLINE_S)


class Liar:
    """A worker that answers each frame with what it was told to."""

    def __init__(self, path, *replies):
        self.replies = list(replies)
        self.hellos = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with short_path(str(path)) as address:
            self._listener.bind(address)
        self._listener.listen()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while self.replies:
            with suppress(PeerGoneError, ConnectionError):
                connection, _ = self._listener.accept()
                hello, channel = accept(connection, DEADLINE_S)
                self.hellos.append(hello)
                with closing(channel):
                    while self.replies:
                        self._answer(channel, connection, channel.receive(), self.replies.pop(0))

    @staticmethod
    def _answer(channel, connection, request, reply):
        if isinstance(reply, bytes):
            connection.send(reply)
        elif reply is not None:
            frame, *tensors = reply
            channel.send(numbered(frame, request.number + frame.number), tensors)
        else:
            channel.shutdown()

    def close(self):
        self._thread.join()
        self._listener.close()


def numbered(frame, number):
    frame = copy(frame)
    frame.number = number
    return frame


GOOD = (Frame(RESPONSE, 0, 1, [1]), tensor(0, X[0]))


@pytest.mark.parametrize(
    "reply",
    [
        b"noise",
        (Frame(RESPONSE, 1, 1, [1]), tensor(0, X[0])),
        (Frame(RESPONSE, 0, 2, [1, 0]), tensor(0, X[0])),
        (Frame(RESPONSE, 0, 1, [1]), tensor(5, X[0])),
        (Frame(RESPONSE, 0, 1, metadata=b"not JSON"),),
        (Frame(RESPONSE, 0, 1, metadata=b'{"errors": {"3": {"message": "no"}}}'),),
        (Frame(RESPONSE, 0, 1, metadata=b'{"errors": {"x": {"message": "no"}}}'),),
        (Frame(RESPONSE, 0, 1, metadata=b'{"errors": {"-1": {"message": "no", "code": "INTERNAL"}}}'),),
        (Frame(RESPONSE, 0, 1, metadata=b'{"errors": ["0"]}'),),
        (Frame(RESPONSE, 0, 1, metadata=b'{"errors": {"0": "no"}}'),),
        (Frame(RESPONSE, 0, 1, metadata=b"true"),),
        (Frame(ERROR, 0, 1, metadata=b"[" * 50_000),),
        (Frame(ERROR, 0, 1, metadata=b"{}"),),
        (Frame(ERROR, 0, 1),),
    ],
    ids=[
        "noise",
        "number",
        "requests",
        "name",
        "metadata",
        "index",
        "no index",
        "index below 0",
        "list",
        "text",
        "no object",
        "nested",
        "error",
        "empty error",
    ],
)
def test_a_reply_that_makes_no_sense_fails_its_batch_and_the_next_one_gets_a_new_connection(link, reply):
    with closing(Liar(link.path, reply, GOOD)) as liar:
        link.connect()
        (response,) = link.model.execute([InferenceRequest({"x": X[0]})])
        assert response.error.code == "internal"
        assert link.infer({"x": X[0]}) == [{"y": [[1, 2]]}]
    assert len(liar.hellos) == 2
    assert liar.hellos[0] == {"protocol": PROTOCOL, "model": "m", "instance": "m_0_3"}


def test_a_worker_that_dies_during_a_batch_makes_it_unavailable_and_it_is_not_tried_again(link):
    with closing(Liar(link.path, None, GOOD)) as liar:
        link.connect()
        (response,) = link.model.execute([InferenceRequest({"x": X[0]})])
        assert response.error.code == "unavailable"
        assert liar.replies == [GOOD]
        assert link.infer({"x": X[0]}) == [{"y": [[1, 2]]}]


def test_a_batch_that_a_worker_has_not_read_before_it_died_goes_to_the_next_one(link):
    with closing(listening(str(link.path))) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(link.connect)
        dying = accept(listener.accept()[0], DEADLINE_S)[1]
        connecting.result()
        answer = pool.submit(link.infer, {"x": LARGE[0]})
        assert select.select([dying], [], [], DEADLINE_S)[0]
        dying.close()
        with closing(accept(listener.accept()[0], DEADLINE_S)[1]) as channel:
            request = channel.receive()
            assert np.array_equal(request.array(request.tensors[0]), LARGE[0])
            channel.send(numbered(GOOD[0], request.number), GOOD[1:])
            assert answer.result() == [{"y": [[1, 2]]}]


def test_many_batches_leave_no_descriptor(link):
    link.serve(double)
    link.infer({"x": LARGE[0]})
    before = len(os.listdir("/proc/self/fd"))
    for x in (X[0], LARGE[0]) * 100:
        link.infer({"x": x})
    assert len(os.listdir("/proc/self/fd")) <= before


def test_requests_of_another_rank_fail_alone_and_the_connection_stays(link):
    calls = []

    def function(requests):
        calls.append(len(requests))
        return double(requests)

    link.serve(function)
    answers = link.infer({"x": X[0]}, {"x": X[0][0]}, {"x": X[1]}, {"x": X[0][None]})
    assert [answers[0], answers[2]] == [{"y": (x * 2).tolist()} for x in X]
    assert answers[1] == "input 'x' has shape [2], expected 2 axes, the first of them the batch's"
    assert answers[3] == "input 'x' has shape [1, 1, 2], expected 2 axes, the first of them the batch's"
    assert link.infer({"x": X[0]}) == [{"y": [[2, 4]]}]
    assert calls == [2, 1]
