"""Callables of this process, called by the threads of a server that is in it too."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.inprocess import InternalError, InvalidArgumentError, Triton
from pytriton.model_config import (
    AllVersions,
    DynamicBatcher,
    ModelConfig,
    ModelWarmup,
    SequenceBatcher,
    Tensor,
    WarmupInput,
)
from pytriton.workers import Processes
from tests.server.gated import Gated
from tests.server.inprocess_models import FLOATS, STRINGS, Models, array, first, inprocess_models, row
from tests.server.inprocess_repository import write_echo
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import native_part_only
from tests.server.worker_factories import doubling
from tests.unit.generators import Endless, as_async, count_up, count_up_async

pytestmark = [pytest.mark.either_proxy, native_part_only]
LARGE = 1 << 18  # numbers, of 1 MiB together
START, END = 1, 2


@batch
def double(x: Any) -> dict[str, Any]:
    return {"y": 2 * x}


@batch
async def double_async(x: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"y": 2 * x}


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    with inprocess_models() as models:
        yield models


@pytest.mark.parametrize("infer", [double, double_async])
@pytest.mark.parametrize("columns", [2, LARGE])
def test_a_callable_answers_requests_of_any_size(models: Models, infer: Any, columns: int):
    name = models.bind(infer, max_batch_size=4)
    answers = [models.send(name, row(number, columns)) for number in range(20)]
    for number, answer in enumerate(answers):
        np.testing.assert_array_equal(array(next(answer)), row(2 * number, columns))


def test_a_model_is_loaded_with_a_configuration_that_changes_only_some_of_its_own(models: Models):
    name = models.bind(double, max_batch_size=4)
    server = models.triton.server
    assert server.load(name, {"config": '{"max_batch_size": "16"}'}).config()["max_batch_size"] == 16
    np.testing.assert_array_equal(array(next(models.send(name, np.ones((12, 2), np.float32)))), np.full((12, 2), 2))
    with models.triton.client(name) as client:
        client.load_model(config='{"max_batch_size": 8}')
        assert client.model_config.max_batch_size == 8


@pytest.mark.parametrize("infer", [count_up, count_up_async])
@pytest.mark.parametrize("columns", [2, LARGE])
def test_a_decoupled_callable_gives_any_number_of_responses(models: Models, infer: Any, columns: int):
    name = models.bind(infer, decoupled=True, max_batch_size=4)
    for number in (0, 3):
        *responses, last = models.send(name, row(number, columns))
        assert [first(response) for response in responses] == [*range(number)]
        assert last.final
        assert not last.outputs


def test_a_thread_of_the_server_calls_a_plain_callable_and_keeps_its_variables(models: Models):
    threads, local = [], threading.local()

    def infer(requests: Any) -> Any:
        threads.append(threading.get_ident())
        local.calls = getattr(local, "calls", 0) + 1
        return [{"y": request["x"] * 0 + local.calls} for request in requests]

    name = models.bind(infer, max_batch_size=4)
    assert [models.ask(name, 0) for _ in range(3)] == [1, 2, 3]
    assert len({*threads}) == 1
    assert not {*threads} & {thread.ident for thread in threading.enumerate()}


def test_requests_that_wait_are_merged(models: Models):
    gated = Gated()
    name = models.bind(gated, max_batch_size=8, batcher=DynamicBatcher())
    sent = [models.send(name, row(0))]
    gated.wait_called()
    sent += [models.send(name, row(number)) for number in range(1, 9)]
    gated.gate.open()
    assert [first(next(each)) for each in sent] == [2 * number for number in range(9)]
    assert gated.seen == [*range(9)]
    assert models.triton.statistics(name)[0].execution_count < len(sent) - 1  # some may go ahead of the others


def test_instances_run_at_the_same_time(models: Models):
    barrier = threading.Barrier(3)

    def infer(requests: Any) -> Any:
        barrier.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    name = models.bind([infer] * 3, max_batch_size=1)
    sent = [models.send(name, row(number)) for number in range(6)]
    assert [first(next(each)) for each in sent] == [*range(6)]


@pytest.mark.parametrize("length", [3, 50_000])
def test_strings_keep_every_byte(models: Models, length: int):
    @batch
    def reverse(x: Any) -> dict[str, Any]:
        return {"y": x[:, ::-1]}

    name = models.bind(reverse, STRINGS, max_batch_size=4)
    strings = [b"\0" * length, b"", b"\xff\0" * length]
    (answer,) = models.send(name, np.array([strings], np.object_))
    assert answer.outputs["y"].to_bytes_array().tolist() == [strings[::-1]]


def test_a_model_without_batching_gets_and_gives_arrays_of_any_form(models: Models):
    tensors = (
        [Tensor(name="x", shape=(-1, -1), dtype=np.int64)],
        [Tensor(name="y", shape=(-1, -1), dtype=np.int64), Tensor(name="none", shape=(-1,), dtype=np.float64)],
    )
    name = models.bind(
        lambda requests: [{"y": requests[0]["x"].T, "none": np.empty(0)}], tensors, batching=False
    )  # columns that are not in C order
    x = np.arange(200 * 300).reshape(200, 300)
    (answer,) = models.send(name, x)
    np.testing.assert_array_equal(array(answer), x.T)
    assert tuple(answer.outputs["none"].shape) == (0,)


@pytest.mark.parametrize("columns", [2, LARGE])
def test_inputs_are_the_callables_own_which_it_may_change_and_keep(models: Models, columns: int):
    kept = []

    @batch
    def infer(x: Any) -> dict[str, Any]:
        kept.append(x)
        x += 1
        return {"y": x}

    name = models.bind(infer, max_batch_size=4)
    for number in range(3):
        sent = row(number, columns)
        (answer,) = models.send(name, sent)
        assert (array(answer) == number + 1).all()
        assert (sent == number).all()
    assert [float(each[0, 0]) for each in kept] == [1, 2, 3]
    assert all((each == each[0, 0]).all() for each in kept)


def test_the_memory_of_large_batches_is_given_back(models: Models):
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    name = models.bind(double, max_batch_size=4)
    x = row(1, 8 * LARGE)
    next(models.send(name, x))
    gc.collect()
    before = resident_bytes()
    for _ in range(40):
        next(models.send(name, x))
    assert resident_bytes() - before < 10 * x.nbytes


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ("plain", ValueError("on purpose")),
        ("plain", SystemExit("on purpose")),
        ("async", ValueError("on purpose")),
        ("generator", KeyboardInterrupt("on purpose")),
    ],
)
def test_whatever_a_callable_raises_is_its_requests_error(models: Models, form: str, error: BaseException):
    def infer(requests: Any) -> Any:
        if requests[0]["x"][0, 0] < 0:
            raise error
        yield [{"y": request["x"]} for request in requests]

    def plain(requests: Any) -> Any:
        return next(infer(requests))

    function = {"plain": plain, "async": as_async(infer), "generator": infer}[form]
    name = models.bind(function, max_batch_size=4, decoupled=form == "generator")
    with pytest.raises(InternalError, match=f"{type(error).__name__}: on purpose"):
        models.ask(name, -1)
    assert models.ask(name, 5) == 5


def test_an_error_of_the_callables_choice_has_its_code(models: Models):
    def infer(requests: Any) -> Any:
        raise PyTritonRequestError("too large", ErrorCode.INVALID_ARG)

    with pytest.raises(InvalidArgumentError, match="too large"):
        models.ask(models.bind(infer, max_batch_size=4), 1)


@pytest.mark.parametrize("form", ["plain", "async"])
def test_a_bad_request_does_not_fail_those_that_it_was_merged_with(models: Models, form: str):
    gated = Gated()

    def infer(requests: Any) -> Any:
        answers = gated(requests)
        if any(request["x"][0, 0] < 0 for request in requests):
            raise ValueError("negative")
        return answers

    async def infer_async(requests: Any) -> Any:
        return await asyncio.to_thread(infer, requests)

    function = {"plain": infer, "async": infer_async}[form]
    name = models.bind(function, max_batch_size=8, max_batches_in_flight=1)
    held = models.send(name, row(0))
    gated.wait_called()
    sent = [models.send(name, row(value), raise_on_error=False) for value in (1, -1, 2)]
    gated.gate.open()
    next(held)
    answers = [next(each) for each in sent]
    assert [first(each) for each in answers if not each.error] == [2, 4]
    assert "negative" in str(answers[1].error)


def test_requests_of_sequences_reach_one_callable_in_order(models: Models):
    class Log:
        def __init__(self) -> None:
            self.seen: list[float] = []

        def __call__(self, requests: Any) -> Any:
            self.seen += [float(request["x"][0, 0]) for request in requests]
            return [{"y": request["x"]} for request in requests]

    logs = [Log(), Log()]
    name = models.bind(logs, batcher=SequenceBatcher(), max_batch_size=2)
    for step, flags in enumerate((START, 0, END)):
        sent = [models.send(name, row(10 * number + step), correlation_id=number, flags=flags) for number in (1, 2)]
        assert [first(next(each)) for each in sent] == [10 + step, 20 + step]
    for number in (1, 2):
        (log,) = (log for log in logs if 10 * number in log.seen)
        assert [value for value in log.seen if value // 10 == number] == [10 * number + step for step in range(3)]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in its thread", "in another thread"])
def test_a_plain_callable_learns_that_its_request_is_cancelled(models: Models, elsewhere: bool):
    entered, left = threading.Event(), threading.Event()

    def wait(requests: Any) -> None:
        wait_for(requests[0].is_cancelled, "the request to be cancelled")
        left.set()

    def infer(requests: Any) -> Any:
        entered.set()
        if elsewhere:
            thread = threading.Thread(target=wait, args=[requests])
            thread.start()
            thread.join()
        else:
            wait(requests)
        return [{"y": request["x"]} for request in requests]

    sent = models.send(models.bind(infer, max_batch_size=4), row(1))
    assert entered.wait(DEADLINE_S)
    sent.cancel()
    assert left.wait(DEADLINE_S)
    next(sent)


@pytest.mark.parametrize("form", ["plain", "async"])
def test_a_stream_whose_client_goes_is_closed(models: Models, form: str):
    endless = Endless()
    name = models.bind(endless if form == "plain" else as_async(endless, 0), max_batch_size=4, decoupled=True)
    sent = models.send(name, row(1))
    next(sent)
    sent.cancel()
    assert endless.closed.wait(DEADLINE_S)


def test_no_request_is_lost_while_a_callable_is_replaced(models: Models):
    name = models.bind(double, max_batch_size=4)
    answers = []
    for number in range(200):
        answers.append(models.send(name, row(1)))
        if number == 100:
            assert first(next(answers.pop(0))) == 2
            models.triton.rebind(name, batch(lambda x: {"y": 3 * x}))
    values = [first(next(each)) for each in answers]
    assert values == sorted(values)
    assert {*values} <= {2, 3}
    assert values[100:] == [3] * 99


def test_versions_of_a_model_have_callables_of_their_own(models: Models):
    def multiply(factor: int) -> Any:
        return batch(lambda x: {"y": factor * x})

    name, config = "versions", ModelConfig(version_policy=AllVersions())
    for version in (1, 2):
        models.triton.bind(name, multiply(version), *FLOATS, model_version=version, config=config)
    server = models.triton.server
    answers = [next(server.model(name, version).infer(inputs={"x": row(5)})) for version in (1, 2)]
    assert [first(each) for each in answers] == [5, 10]
    models.triton.unbind(name, 2)
    assert [server.model(name, version).ready() for version in (1, 2)] == [True, False]


def test_a_model_is_warmed_up_before_it_is_loaded(models: Models):
    seen = []

    @batch
    def infer(x: Any) -> dict[str, Any]:
        seen.append(x.shape)
        return {"y": x}

    zeros = WarmupInput(shape=(5,), dtype=np.float32, zero_data=True)
    warmup = ModelWarmup(name="zeros", batch_size=3, inputs={"x": zeros})
    name = models.bind(infer, max_batch_size=4, model_warmup=[warmup])
    assert seen == [(3, 5)]
    assert models.ask(name, 4) == 4


def test_worker_processes_serve_a_server_in_this_process(models: Models):
    name = models.bind(Processes(doubling, count=1), max_batch_size=4)
    assert models.ask(name, 4) == 8
    models.triton.unbind(name)


def test_models_of_a_repository_are_served_beside_bound_ones(tmp_path: Path):
    write_echo(tmp_path)
    with Triton(model_repository=str(tmp_path)) as triton:
        triton.bind("bound", double, *FLOATS)
        assert {name for name, _ in triton.server.models()} == {"bound", "echo"}


def test_the_log_names_no_path_to_a_model_that_has_none(models: Models, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", "pytriton"):
        name = models.bind(double)
    assert f"available as model {name!r} of the server in this process" in caplog.text
    assert "/v2/" not in caplog.text


@pytest.mark.parametrize("cached", [True, False])
def test_repeated_requests_are_answered_from_a_cache_or_the_user_is_told_that_there_is_none(
    cached: bool, caplog: pytest.LogCaptureFixture
):
    calls = []

    @batch
    def infer(x: Any) -> Any:
        calls.append(x.copy())
        return {"y": x}

    with inprocess_models(cache_config={"local": {"size": 1 << 20}} if cached else {}) as models:
        name = models.bind(infer, response_cache=True)
        assert [models.ask(name, value) for value in (1, 1, 2, 1)] == [1, 1, 2, 1]
    assert len(calls) == (2 if cached else 4)
    assert ("the server has none; set Options.cache_config" in caplog.text) is not cached
