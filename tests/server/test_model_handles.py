"""Callables that call models of their server: what they get, what travels along, and what cannot hang."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient

from pytriton import Pipeline, Split, inprocess
from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.arguments import InferRequest, RequestOptions
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientInputError
from pytriton.client.session import ModelSession
from pytriton.client.sync import drive
from pytriton.composition.connector import NetworkConnector
from pytriton.composition.handle import ModelCallError, ModelHandle
from pytriton.constants import CALLERS_PARAMETER
from pytriton.decorators import PerSequence, batch
from pytriton.exceptions import (
    ErrorCode,
    PyTritonInvalidOperationError,
    PyTritonRequestError,
    PyTritonValidationError,
)
from pytriton.model_config import DynamicBatcher, ModelConfig, SequenceBatcher
from pytriton.triton import Triton
from pytriton.worker.origin import current_origin
from pytriton.workers import Processes
from tests.server.conftest import local_config
from tests.server.handle_models import (
    ARRAYS,
    COLUMNS,
    IN_PROCESSES,
    STREAMS,
    VALUES,
    bind_all,
    count_up,
    halve,
    name_of,
    plain,
    rooster,
)
from tests.server.own_server import address
from tests.server.processes import wait_for
from tests.server.proxies import HAS_EDGE
from tests.server.traffic import Gate

Client = Callable[..., Any]
DEADLINE_S = 30.0
SERVERS = ["launched", "in process"]


class Served:
    """Models that call models, and clients of them."""

    def __init__(self, triton: Any, client: Client, streams: Client, http_url: str = "", grpc_url: str = "") -> None:
        self.triton, self.client, self.streams, self.http_url, self.grpc_url = (
            triton,
            client,
            streams,
            http_url,
            grpc_url,
        )


@contextmanager
def serving(where: str) -> Iterator[Served]:
    """A server without models: ``launched`` or ``in process``."""
    if where == "in process":
        with inprocess.Triton() as triton:
            yield Served(triton, triton.client, partial(inprocess.DecoupledModelClient, triton.server))
        return
    with local_config() as config, Triton(config=config) as triton:
        http, grpc = address(config, "http"), address(config, "grpc")
        yield Served(triton, partial(ModelClient, http), partial(DecoupledModelClient, grpc), http, grpc)


@pytest.fixture(scope="module")
def launched() -> Iterator[Served]:
    with serving("launched") as served:
        yield served


@pytest.fixture(scope="module", params=SERVERS)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param) as served:
        bind_all(served.triton)
        yield served


@pytest.mark.parametrize(("function", "given", "expected"), VALUES, ids=[name_of(each) for each, _, _ in VALUES])
def test_functions_call_models_with_values(served, function, given, expected):
    with served.client(name_of(function)) as client:
        assert client.call(given) == expected


@pytest.mark.either_proxy
@pytest.mark.parametrize("function", STREAMS)
def test_streams_are_passed_on(served, function):
    with served.streams(name_of(function)) as client:
        assert [*client.call(4)] == [0, 2, 4, 6]


@pytest.mark.parametrize(("function", "batching"), ARRAYS, ids=[name_of(each) for each, _ in ARRAYS])
def test_functions_call_models_with_arrays(served, function, batching):
    with served.client(name_of(function)) as client:
        x = np.arange(3, dtype=np.float32)
        if batching:  # more rows than the called model takes at once
            outputs = client.infer_batch(np.tile(x, (4, 1)))
            np.testing.assert_array_equal(outputs["y"], np.tile(x + 1, (4, 1)))
        else:
            np.testing.assert_array_equal(client.infer_sample(x)["y"], [4])


@pytest.mark.either_proxy
@pytest.mark.parametrize("share", [False, True], ids=["processes", "shared processes"])
@pytest.mark.parametrize(
    ("function", "given", "expected"), IN_PROCESSES, ids=[name_of(each[0]) for each in IN_PROCESSES]
)
def test_worker_processes_call_models(launched, share, function, given, expected):
    with suppress(PyTritonInvalidOperationError):
        for callee in (halve, count_up):
            launched.triton.bind(callee)
    launched.triton.bind("in_a_process", Processes(lambda: function, count=1, share=share))
    try:
        with launched.client("in_a_process") as client:
            assert client.call(given) == expected
    finally:
        launched.triton.unbind("in_a_process")


def test_an_error_of_the_called_model_names_both(served):
    with served.client("plain") as client, pytest.raises(PyTritonClientInferenceServerError) as caught:
        client.call(-1.0)
    assert "model 'halve', called by 'plain': ValueError: there is no half of that" in str(caught.value)
    assert "[500]" not in str(caught.value).removeprefix("[500] ")


def test_all_codes_of_a_called_model_arrive(served):
    def refusing(code: str) -> str:
        raise PyTritonRequestError("[500] why", code)

    def streaming(code: str) -> Iterator[str]:
        yield code
        raise PyTritonRequestError("[500] why", code)

    def told(code: str, refusing: ModelHandle, streaming: ModelHandle, refusing_pipeline: ModelHandle) -> list[str]:
        found = []
        for call in (refusing, refusing_pipeline, lambda code: [*streaming(code)]):
            try:
                call(code)
            except ModelCallError as error:
                found += [error.code.value, error.message]
        return found

    for function in (refusing, streaming):
        served.triton.bind(function)
    served.triton.bind("refusing_pipeline", Pipeline("refusing"))
    served.triton.bind(told)
    with served.client("told") as client:
        for code in ErrorCode.__members__:
            one, why, piped, _, streamed, why_streamed = client.call(code)
            assert (one, piped, streamed) == (code, code, code)
            assert why == "model 'refusing', called by 'told': [500] why"
            assert why_streamed == "model 'streaming', called by 'told': [500] why"
    for name in ("told", "refusing_pipeline", "refusing", "streaming"):
        served.triton.unbind(name)


def test_clients_of_the_same_batch_get_messages_without_code(launched):
    @batch
    def failing(x: Any) -> dict[str, Any]:
        raise PyTritonRequestError(f"{len(x)} rows", ErrorCode.CANCELLED)

    @batch
    def of_failing(x: Any, failing: ModelHandle) -> dict[str, Any]:
        return failing(x)

    batcher = DynamicBatcher(max_queue_delay_microseconds=60_000_000, preferred_batch_size=[2])
    config = ModelConfig(batcher=batcher, max_batch_size=2, isolate_errors=False)
    launched.triton.bind("failing", failing, *COLUMNS, config=config)
    launched.triton.bind("of_failing", of_failing, *COLUMNS)

    def message(name: str) -> str:
        with launched.client(name) as client, pytest.raises(PyTritonClientInferenceServerError) as caught:
            client.infer_batch(np.zeros((1, 1), np.float32))
        return caught.value.message.partition("] ")[2]

    try:
        with ThreadPoolExecutor(2) as pool:
            found = {*pool.map(message, ["failing", "of_failing"])}
        assert found == {"2 rows", "model 'failing', called by 'of_failing': 2 rows"}
    finally:
        launched.triton.unbind("of_failing")
        launched.triton.unbind("failing")


@pytest.mark.either_proxy
def test_calls_of_several_clients_are_merged(launched):
    sizes = []

    @batch
    def crowd(x: Any) -> dict[str, Any]:
        sizes.append(len(x))
        return {"y": x}

    async def caller(number: float, crowd: ModelHandle) -> float:
        return float((await crowd(np.array([[number]], np.float32)))["y"][0, 0])

    batcher = DynamicBatcher(max_queue_delay_microseconds=200_000)
    launched.triton.bind("crowd", crowd, *COLUMNS, config=ModelConfig(batcher=batcher))
    launched.triton.bind("caller", caller)

    def call(number: float) -> float:
        with launched.client("caller") as client:
            return client.call(number)

    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(call, map(float, range(16)))] == [*range(16)]
    assert max(sizes) > 1


def test_id_deadline_and_priority_go_along(launched):
    seen, priorities, callers = [], [], []

    def callee(requests: list[Any]) -> list[Any]:
        origin = current_origin.get()
        seen.extend((request.request_id, request.deadline, dict(request.parameters)) for request in requests)
        priorities.append(origin.priority)
        callers.append(origin.callers(launched.triton.triton_context.connector().secret))
        return [{"y": request["x"]} for request in requests]

    @batch
    def middle(x: Any, innermost: ModelHandle) -> dict[str, Any]:
        return innermost(x, parameters={"own": 1})

    @batch
    def outermost(x: Any, middle: ModelHandle) -> dict[str, Any]:
        return middle(x)

    launched.triton.bind("innermost", callee, *COLUMNS)
    for function in (middle, outermost):
        launched.triton.bind(function.__name__, function, *COLUMNS)
    with launched.client("outermost") as client:
        x = np.zeros((1, 1), np.float32)
        client.with_options(request_id="mine", server_timeout_s=60.0, priority=2).infer_batch(x)
        client.with_options(request_id="other").infer_batch(x)
    (first, first_deadline, parameters), (second, second_deadline, _) = seen
    assert (first, second) == ("mine", "other")
    assert parameters == {"own": 1}  # the names of the callers are no parameter of the user's
    assert 0 < first_deadline - time.monotonic() < 60
    assert second_deadline is None
    assert priorities == [2 if HAS_EDGE else 0, 0]
    assert callers == [(2, ["outermost", "middle"])] * 2


def test_a_time_that_is_longer_than_a_client_may_give_is_handed_on_as_the_longest(launched):
    @batch
    def calling(x: Any, called: ModelHandle) -> dict[str, Any]:
        return called(x)

    launched.triton.bind("called", batch(lambda x: {"y": x}), *COLUMNS)
    launched.triton.bind("calling", calling, *COLUMNS)
    given = httpclient.InferInput("x", [1, 1], "FP32")
    given.set_data_from_numpy(np.ones((1, 1), np.float32))
    with httpclient.InferenceServerClient(launched.http_url.removeprefix("http://")) as client:
        assert client.infer("calling", [given], timeout=2**63).as_numpy("y") == [[1]]


@pytest.mark.parametrize("form", ["plain", "coroutine"])
def test_a_call_ends_with_the_deadline_of_its_request(launched, form):
    gate = Gate()

    def stuck(number: float) -> float:
        gate.wait()
        return number

    def plain(number: float, stuck: ModelHandle) -> float:
        return stuck(number)

    async def coroutine(number: float, stuck: ModelHandle) -> float:
        return await stuck(number)

    launched.triton.bind("stuck", stuck)
    launched.triton.bind("late", {"plain": plain, "coroutine": coroutine}[form])
    try:
        with launched.client("late") as client, pytest.raises(PyTritonClientInferenceServerError) as caught:
            client.with_options(server_timeout_s=0.5).call(1.0)
        assert "model 'stuck', called by 'late'" in str(caught.value)
    finally:
        gate.open()
        launched.triton.unbind("late")
        launched.triton.unbind("stuck")


@pytest.mark.parametrize("form", ["plain", "coroutine"])
@pytest.mark.parametrize("callee", ["missing", "in parts", "streams"])
def test_no_step_of_a_call_goes_on_when_no_time_is_left(launched, callee, form):
    parts = []

    @batch
    def in_parts(x: Any) -> dict[str, Any]:
        parts.append(x)
        time.sleep(0.1)
        return {"y": x}

    async def streams(number: float) -> AsyncIterator[float]:
        while True:
            await asyncio.sleep(0.01)
            yield number

    def plain(number: float, friend: ModelHandle) -> float:
        return sum(friend(number))

    async def coroutine(number: float, friend: ModelHandle) -> float:
        return sum([each async for each in friend(number)])

    @batch
    def plain_batch(x: Any, friend: ModelHandle) -> dict[str, Any]:
        return friend(np.ones((100, 1), np.float32))

    @batch
    async def coroutine_batch(x: Any, friend: ModelHandle) -> dict[str, Any]:
        return await friend(np.ones((100, 1), np.float32))

    functions = [plain, coroutine] if callee == "streams" else [plain_batch, coroutine_batch]
    late = functions[form == "coroutine"]
    tensors: Any = () if callee == "streams" else COLUMNS
    if callee != "missing":
        callees = {"in parts": in_parts, "streams": streams}
        config = ModelConfig(max_batch_size=1)
        launched.triton.bind("friend", callees[callee], *tensors, config=config if callee == "in parts" else None)
    launched.triton.bind("late", late, *tensors)
    x = {"number": 1.0} if callee == "streams" else {"x": np.ones((1, 1), np.float32)}
    try:
        with launched.client("late") as client:
            in_time = client.with_options(server_timeout_s=0.5)
            call = in_time.call if callee == "streams" else in_time.infer_batch
            with pytest.raises(PyTritonClientInferenceServerError, match="model 'friend', called by 'late'"):
                call(**x)
        assert len(parts) < 50
    finally:
        launched.triton.unbind("late")
        if callee != "missing":
            launched.triton.unbind("friend")


def test_a_call_over_grpc_ends_when_its_check_fails(launched):
    begun = threading.Event()

    async def endless(number: float) -> float:
        begun.set()
        await asyncio.sleep(DEADLINE_S)
        return number

    def check() -> None:
        if begun.is_set():
            raise ModelCallError("no client waits for the answer any more", ErrorCode.CANCELLED)

    launched.triton.bind(endless)
    transport = NetworkConnector(None, launched.grpc_url, "").transport()
    transport.check = check
    session = ModelSession(
        "endless", None, init_timeout_s=DEADLINE_S, inference_timeout_s=math.inf, model_config=None, model_ready=False
    )
    try:
        with pytest.raises(ModelCallError, match="no client waits"):
            drive(session.call(InferRequest((1.0,), {}, None, None, True, RequestOptions())), transport)
    finally:
        transport.close()
        launched.triton.unbind("endless")


@pytest.mark.parametrize("form", ["plain", "coroutine", "map", "submit", "stream"])
def test_a_client_that_goes_away_cancels_the_whole_tree(launched, form):
    begun, cancelled, codes = threading.Event(), threading.Event(), []

    async def endless(number: float) -> float:
        begun.set()
        try:
            await asyncio.sleep(DEADLINE_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return number

    async def endless_stream(number: float) -> AsyncIterator[float]:
        begun.set()
        try:
            while True:
                await asyncio.sleep(0.01)
                yield number
        except (asyncio.CancelledError, GeneratorExit):
            cancelled.set()
            raise

    def plain(number: float, endless: ModelHandle) -> float:
        try:
            return endless(number)
        except ModelCallError as error:
            codes.append(error.code)
            raise

    async def coroutine(number: float, endless: ModelHandle) -> float:
        return await endless(number)

    def mapped(number: float, endless: ModelHandle) -> float:
        return endless.map([number])[0]

    def submitting(number: float, endless: ModelHandle) -> float:
        return endless.submit(number).result()

    def streamed(number: float, endless_stream: ModelHandle) -> float:
        return sum(endless_stream(number))

    callers = {"plain": plain, "coroutine": coroutine, "map": mapped, "submit": submitting, "stream": streamed}
    callee = endless_stream if form == "stream" else endless
    launched.triton.bind(callee)
    launched.triton.bind("leaving", callers[form])

    async def leave() -> None:
        async with AsyncioModelClient(launched.grpc_url, "leaving") as client:  # HTTP does not tell before the answer
            call = asyncio.ensure_future(client.call(1.0))
            while not begun.is_set():
                await asyncio.sleep(0.01)
            call.cancel()

    try:
        asyncio.run(leave())
        wait_for(cancelled.is_set, "the cancellation of the called model")
        if form == "plain":
            wait_for(lambda: codes == [ErrorCode.CANCELLED], f"the error of the call: {codes}")
    finally:
        launched.triton.unbind("leaving")
        launched.triton.unbind(callee.__name__)


@pytest.mark.either_proxy
def test_models_that_would_wait_for_themselves_are_told_the_path(launched):
    def hen(number: int, egg: ModelHandle) -> int:
        return egg(number - 1) if number else 0

    def egg(number: int, hen: ModelHandle) -> int:
        return hen(number - 1) if number else 0

    launched.triton.bind(hen)
    launched.triton.bind(egg)
    with launched.client("hen") as client:
        assert client.call(1) == 0
        with pytest.raises(PyTritonClientInferenceServerError) as caught:
            client.call(2)
    assert "hen → egg → hen" in str(caught.value)


def test_clients_cannot_forge_callers(served):
    with served.client("plain") as client:
        assert client.call(6.0, parameters={CALLERS_PARAMETER: "1 halve"}) == 4.0
        assert client.call(6.0, parameters={CALLERS_PARAMETER: "99 hen"}) == 4.0
    with served.streams("passed_on") as client:
        assert [*client.call(2, parameters={CALLERS_PARAMETER: "1 count_up"})] == [0, 2]


@pytest.mark.parametrize("frontend", ["edge", "triton"])
def test_clients_cannot_forge_callers_by_headers(frontend):
    if frontend == "edge" and not HAS_EDGE:
        pytest.skip("there is no edge")
    pattern, forged = "pytriton_.*", {CALLERS_PARAMETER: "1 halve"}
    given = {"http_header_forward_pattern": pattern, "grpc_header_forward_pattern": pattern}
    front_ends = {"http_frontend": "triton", "grpc_frontend": "triton"} if frontend == "triton" else {}
    with local_config(**given, **front_ends) as config, Triton(config=config) as triton:
        for function in (halve, plain):
            triton.bind(function)
        for door in ("http", "grpc"):
            with ModelClient(address(config, door), "plain") as client:
                assert client.call(6.0, headers=forged) == 4.0


@pytest.mark.either_proxy
def test_a_cycle_with_a_pipeline_in_it_is_refused_at_bind(launched):
    def first(number: int, second: ModelHandle) -> int:
        return second(number)

    def second(number: int, between: ModelHandle) -> int:
        return between(number)

    launched.triton.bind(first)
    launched.triton.bind("between", Pipeline("first"))
    try:
        with pytest.raises(PyTritonValidationError, match="second → between → first → second"):
            launched.triton.bind(second)
        launched.triton.unbind("between")
        launched.triton.bind(second)
        with pytest.raises(PyTritonValidationError, match="between → first → second → between"):
            launched.triton.bind("between", Pipeline("first"))
    finally:
        launched.triton.unbind("first")
        launched.triton.unbind("second")


@pytest.mark.either_proxy
@pytest.mark.parametrize("share", [False, True])
def test_a_cycle_of_processes_with_a_pipeline_in_it_is_refused_at_bind(launched, share):
    processes = Processes(lambda: rooster, count=1, share=share)
    launched.triton.bind("rooster", processes)
    try:
        with pytest.raises(PyTritonValidationError, match="between → rooster → between"):
            launched.triton.bind("between", Pipeline("rooster"))
        launched.triton.unbind("rooster")
        launched.triton.bind("rooster", halve)
        launched.triton.bind("between", Pipeline("rooster"))
        with pytest.raises(PyTritonValidationError, match="rooster → between → rooster"):
            launched.triton.bind("rooster", processes, replace=True)
    finally:
        for name in ("between", "rooster"):
            with suppress(PyTritonInvalidOperationError):
                launched.triton.unbind(name)


@pytest.mark.either_proxy
def test_a_model_that_calls_itself_is_refused_at_bind(launched):
    def narcissus(number: int, narcissus: ModelHandle) -> int:
        return narcissus(number)

    with pytest.raises(PyTritonValidationError, match="would wait for itself"):
        launched.triton.bind(narcissus)


@pytest.mark.either_proxy
def test_a_missing_model_is_named_and_may_come_later(launched):
    def lonely(number: float, newcomer: ModelHandle) -> float:
        return newcomer.with_options(inference_timeout_s=5.0)(number)

    launched.triton.bind(lonely)
    with launched.client("lonely") as client:
        with pytest.raises(PyTritonClientInferenceServerError, match="model 'newcomer', called by 'lonely'"):
            client.call(1.0)
        launched.triton.bind("newcomer", halve)
        assert client.call(1.0) == 0.5


@pytest.mark.either_proxy
def test_a_callee_that_is_bound_anew_is_called_in_its_new_form(launched):
    def shifting(number: float) -> float:
        return number

    def shifted(number: int) -> int:
        return number + 1

    def caller(number: float, shifting: ModelHandle) -> float:
        try:
            return float(shifting(number))
        except Exception:
            return float(shifting(int(number)))

    launched.triton.bind("shifting", shifting)
    launched.triton.bind("observer", caller)
    with launched.client("observer") as client:
        assert client.call(1.0) == 1.0
        launched.triton.bind("shifting", shifted, replace=True)
        assert client.call(1.0) == 2.0


@pytest.mark.either_proxy
def test_a_model_that_was_unbound_is_an_error_before_long_and_may_come_back(launched):
    def leaver(number: float) -> float:
        return number

    def left(number: float, leaver: ModelHandle) -> float:
        return leaver(number)

    launched.triton.bind(leaver)
    launched.triton.bind(left)
    with launched.client("left") as client:
        assert client.call(1.0) == 1.0
        launched.triton.unbind("leaver")
        for _ in range(2):
            with pytest.raises(PyTritonClientInferenceServerError, match="model 'leaver', called by 'left'"):
                client.with_options(inference_timeout_s=DEADLINE_S).call(1.0)
        launched.triton.bind(leaver)
        assert client.call(1.0) == 1.0


@pytest.mark.either_proxy
@pytest.mark.parametrize("form", ["other type", "other shape", "stream"])
@pytest.mark.parametrize("caller", ["plain", "coroutine"])
def test_a_callee_that_is_bound_anew_with_other_results_fails_one_call_only(launched, form, caller):
    def first(word: str) -> str:
        return word

    def typed(word: str) -> int:
        return len(word)

    def shaped(word: str) -> list[str]:
        return [word, word]

    def streaming(word: str) -> Iterator[str]:
        yield word

    def plain(word: str, changing: ModelHandle) -> str:
        found = changing(word)
        return str([*found] if isinstance(found, Iterator) else found)

    async def coroutine(word: str, changing: ModelHandle) -> str:
        found = changing(word)
        return str([part async for part in found] if streams.is_set() else await found)

    streams = threading.Event()
    changed, expected = {
        "other type": (typed, "2"),
        "other shape": (shaped, "['ab', 'ab']"),
        "stream": (streaming, "['ab']"),
    }[form]
    launched.triton.bind("changing", first)
    launched.triton.bind("changes", {"plain": plain, "coroutine": coroutine}[caller])
    try:
        with launched.client("changes") as client:
            assert client.call("ab") == "ab"
            launched.triton.bind("changing", changed, replace=True)
            with pytest.raises(PyTritonClientInferenceServerError):
                client.call("ab")
            if form == "stream":
                streams.set()
            assert client.call("ab") == expected
    finally:
        launched.triton.unbind("changes")
        launched.triton.unbind("changing")


@pytest.mark.either_proxy
def test_an_input_may_have_the_name_self(launched):
    def selfish(self: float) -> float:
        return self

    def caller(number: float, selfish: ModelHandle) -> float:
        return selfish(self=number) + selfish.submit(self=number).result()

    launched.triton.bind(selfish)
    launched.triton.bind("of_self", caller)
    with launched.client("of_self") as client:
        assert client.call(1.0) == 2.0


def test_an_input_may_have_the_name_parameters(launched):
    def tuned(number: float, parameters: dict[str, float]) -> float:
        return number * parameters["factor"]

    def tuning(number: float, tuned: ModelHandle) -> float:
        given = {"factor": 2.0}
        by_name = tuned(number=number, parameters=given), tuned.submit(number=number, parameters=given).result()
        return sum(by_name) + tuned(number, given, parameters={"of": "the request"})

    launched.triton.bind(tuned)
    launched.triton.bind(tuning)
    launched.triton.bind("tuned_by_split", Split({"tuned": 1}))
    with launched.client("tuning") as client:
        assert client.call(1.0) == 6.0
    with launched.client("tuned_by_split") as client:
        assert client.call(1.0, {"factor": 2.0}, parameters={"of": "the request"}) == 2.0


@pytest.mark.either_proxy
@pytest.mark.parametrize("others", ["alone", "beside models that call each other"])
@pytest.mark.parametrize("where", SERVERS)
def test_a_stop_answers_callers_before_their_callees_go(where, others):
    answers, entered = [], threading.Event()

    def slow(number: float) -> float:
        entered.set()
        time.sleep(0.5)
        return number

    def twice(number: float, slow: ModelHandle) -> float:
        return slow(number) + slow(number)

    def hen(number: float, egg: ModelHandle) -> float:
        return egg(number)

    def egg(number: float, hen: ModelHandle) -> float:
        return hen(number)

    with serving(where) as served:
        if others != "alone":
            served.triton.bind(hen)
            served.triton.bind(egg)
        served.triton.bind(slow)
        served.triton.bind(twice)
        client = served.client("twice")
        thread = threading.Thread(target=lambda: answers.append(client.call(1.0)))
        thread.start()
        assert entered.wait(DEADLINE_S)
    thread.join(DEADLINE_S)
    client.close()
    assert answers == [2.0]


@pytest.mark.either_proxy
def test_workers_of_a_server_elsewhere_call_its_models(server, remote):
    bind_all(remote)
    with ModelClient(address(server, "http"), "plain") as client:
        assert client.call(6.0) == 4.0


class Total:
    """Adds up what the requests of a sequence bring."""

    def __init__(self) -> None:
        self.total = 0.0

    def __call__(self, x: Any) -> dict[str, Any]:
        self.total += x.sum()
        return {"y": np.full((len(x), 1), self.total, np.float32)}


@pytest.mark.either_proxy
@pytest.mark.parametrize("sequence", [7, "a dialogue"])
def test_handles_and_clients_send_the_requests_of_a_sequence(served, sequence):
    def twice(number: float, total: ModelHandle) -> float:
        x, of_sequence = np.full((1, 1), number, np.float32), total.with_options(sequence_id=sequence)
        of_sequence.with_options(sequence_start=True)(x)
        return float(of_sequence.with_options(sequence_end=True)(x)["y"][0, 0])

    config = ModelConfig(batcher=SequenceBatcher(), max_batch_size=4)
    served.triton.bind("total", PerSequence(Total), *COLUMNS, config=config)
    served.triton.bind(twice)
    try:
        with served.client("twice") as client:
            assert [client.call(number) for number in (1.0, 2.0)] == [2, 4]
        clients = [served.client("total"), *([ModelClient(served.grpc_url, "total")] if served.grpc_url else [])]
        for each in clients:
            with each.with_options(sequence_id=sequence) as client:
                for number in range(3):
                    marked = client.with_options(sequence_start=number == 0, sequence_end=number == 2)
                    total = marked.infer_batch(np.ones((1, 1), np.float32))["y"][0, 0]
                assert total == 3
                with pytest.raises(PyTritonClientInputError, match="5 rows"):  # in parts it would be several requests
                    client.with_options(split_batches=True).infer_batch(np.ones((5, 1), np.float32))
    finally:
        served.triton.unbind("twice")
        served.triton.unbind("total")


@pytest.mark.either_proxy
def test_large_tensors_pass_from_model_to_model(launched):
    @batch
    def inner(x: Any) -> dict[str, Any]:
        return {"y": x + 1}

    @batch
    def outer(x: Any, inner: ModelHandle) -> dict[str, Any]:
        return inner(x)

    launched.triton.bind("inner", inner, *COLUMNS)
    launched.triton.bind("outer", outer, *COLUMNS)
    x = np.arange(1 << 22, dtype=np.float32)[np.newaxis]
    with launched.client("outer") as client:
        for _ in range(3):
            np.testing.assert_array_equal(client.infer_batch(x)["y"], x + 1)
