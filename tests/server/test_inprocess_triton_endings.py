"""What becomes of requests to callables of this process when a model, the server or the interpreter ends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import urllib.request
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pytriton.client import ModelClient
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonUnrecoverableError
from pytriton.inprocess import Triton
from pytriton.model_config import SequenceBatcher
from tests.server.inprocess_models import Models, first, inprocess_models, row
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import native_part_only
from tests.server.traffic import Gate

pytestmark = [pytest.mark.either_proxy, native_part_only]
FORMS = ["plain", "async", "generator"]
PROGRAM = """
import asyncio, os, signal, sys, threading, time
import numpy as np
from pytriton.inprocess import MemoryAllocator, MemoryBuffer, Triton
from tests.server.inprocess_models import Models, first, row

ending = sys.argv[1]
entered = threading.Barrier(5)

def pauses():
    # Many short ones: the thread asks for the interpreter's lock again and again, also while the interpreter finalizes.
    end = time.monotonic() + (30 if ending == "late" else 0.1)
    while time.monotonic() < end:
        yield 0.001

def plain(requests):
    entered.wait()
    for pause in pauses():
        time.sleep(pause)
    return [{"y": request["x"]} for request in requests]

async def coroutine(requests):
    await asyncio.to_thread(entered.wait)
    for pause in pauses():
        await asyncio.sleep(pause)
    return [{"y": request["x"]} for request in requests]

def generator(requests):
    yield plain(requests)

def echo(requests):
    return [{"y": request["x"]} for request in requests]

class Slow(MemoryAllocator):
    def allocate(self, size, memory_type, memory_type_id):
        plain([])
        return MemoryBuffer.from_array(np.empty(size, np.uint8))

triton = Triton(exit_timeout=0 if ending == "late" else 30)
triton.connect()
models = Models(triton)
names = [models.bind(infer, decoupled=infer is generator) for infer in (plain, coroutine, generator)]
answers = [models.send(name, row(1)) for name in names]
answers.append(models.send(models.bind(echo), row(1), output_memory_allocator=Slow()))
entered.wait()
if ending == "soon":
    child = os.fork()
    if not child:
        sys.exit()  # which is nothing to the server
    os.waitpid(child, 0)
    models.bind(generator, decoupled=True)
if ending == "signal":
    def send():
        while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # until it is served
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send).start()
    triton.serve()
    print([first(next(answer)) for answer in answers])
"""


class Held:
    """Callables that a test holds up."""

    def __init__(self) -> None:
        self.gate = Gate()

    def plain(self, requests: Any) -> Any:
        self.gate.wait()
        return [{"y": request["x"]} for request in requests]

    async def coroutine(self, requests: Any) -> Any:
        return await asyncio.to_thread(self.plain, requests)

    def generator(self, requests: Any) -> Any:
        yield [{"y": request["x"]} for request in requests]
        yield self.plain(requests)

    def bind(self, models: Models, form: str) -> str:
        function = {"plain": self.plain, "async": self.coroutine, "generator": self.generator}[form]
        return models.bind(function, decoupled=form == "generator", max_batch_size=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", ["unbind", "stop"])
def test_requests_in_flight_are_answered_before_an_end(form: str, ending: str):
    held = Held()
    with inprocess_models() as models:
        name = held.bind(models, form)
        sent = [models.send(name, row(number)) for number in range(3)]
        assert held.gate.entered.wait(DEADLINE_S)
        opening = threading.Timer(0.05, held.gate.open)
        opening.start()
        models.triton.unbind(name) if ending == "unbind" else models.triton.stop()
        for number, each in enumerate(sent):
            assert {first(response) for response in each if response.outputs} == {number}
        opening.join()


def workers() -> list[str]:
    """The threads of instances, and of a budget of memory."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("pytriton-model-", "pytriton-memory"))]


@pytest.mark.parametrize("form", FORMS)
def test_a_triton_to_which_nothing_refers_stops_and_answers_what_is_in_flight(form: str, tmp_path: Path):
    held = Held()
    triton = Triton(workspace=tmp_path / "workspace", memory_budget=2**40)
    triton.connect()
    page = triton.serve_metrics(0, registry=CollectorRegistry())
    models = Models(triton)
    name = held.bind(models, form)
    sent = models.send(name, row(1))
    assert held.gate.entered.wait(DEADLINE_S)
    gone = weakref.ref(triton)
    del triton, models
    held.gate.open()
    assert {first(response) for response in sent if response.outputs} == {1}
    del sent

    def collected() -> bool:
        gc.collect()
        return gone() is None

    wait_for(collected, "the object to be collected")
    wait_for(lambda: not workers(), "the instances to end")
    wait_for(lambda: not (tmp_path / "workspace").exists(), "the workspace to be removed")
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(page)


@pytest.mark.parametrize("keep", [lambda triton: triton.server, lambda triton: triton.client("model-0")])
def test_a_triton_stays_for_its_server_and_clients(keep: Any):
    triton = Triton()
    triton.connect()
    models = Models(triton)
    name = models.bind(lambda requests: [{"y": request["x"] * 2} for request in requests])
    kept = keep(triton)
    del triton, models
    gc.collect()
    if isinstance(kept, ModelClient):
        assert kept.infer_sample(np.ones(2, np.float32))["y"].tolist() == [2, 2]
        kept.close()
    else:
        assert first(next(kept.model(name).infer(inputs={"x": row(2)}))) == 4
    del kept

    def stopped() -> bool:
        gc.collect()
        return not workers()

    wait_for(stopped, "the instances to end")


def test_a_triton_that_was_never_connected_leaves_no_files(tmp_path: Path):
    triton = Triton(workspace=tmp_path / "workspace")
    assert (tmp_path / "workspace").exists()
    del triton
    gc.collect()
    wait_for(lambda: not (tmp_path / "workspace").exists(), "the workspace to be removed")


def test_a_request_that_outlasts_the_question_whether_its_model_has_gone_is_answered(monkeypatch: pytest.MonkeyPatch):
    held = Held()
    with inprocess_models() as models:
        name = held.bind(models, "plain")
        sent = models.send(name, row(1))
        assert held.gate.entered.wait(DEADLINE_S)
        server = models.triton._server
        ask = server.version_states

        def version_states() -> dict[tuple[str, str], str]:
            states = ask()
            held.gate.open()
            return states

        monkeypatch.setattr(server, "version_states", version_states)
        models.triton.unbind(name)
        assert {first(response) for response in sent if response.outputs} == {1}


def test_a_model_is_bound_again_and_again_while_others_are_called():
    held, done = Held(), threading.Event()
    held.gate.open()
    with inprocess_models() as models:
        other = held.bind(models, "plain")
        answers = []

        def call() -> None:
            while not done.is_set():
                answers.append(models.ask(other, 7))

        caller = threading.Thread(target=call)
        caller.start()
        for form in FORMS * 3:
            name = held.bind(models, form)
            assert models.ask(name, 3) == 3
            models.triton.unbind(name)
            own = f"pytriton-{name}-"
            wait_for(lambda own=own: not any(each.name.startswith(own) for each in threading.enumerate()), "its end")
        done.set()
        caller.join()
        assert {*answers} == {7}


def test_an_unrecoverable_error_stops_the_server():
    def infer(requests: Any) -> Any:
        raise PyTritonUnrecoverableError("on purpose")

    with inprocess_models() as models:
        name = models.bind(infer, max_batch_size=1)
        (answer,) = models.send(name, row(1), raise_on_error=False)
        assert "on purpose" in str(answer.error)
        wait_for(lambda: not models.triton.is_alive(), "the server to stop")
        with pytest.raises(PyTritonInvalidOperationError, match="was stopped"):
            models.bind(infer)


def test_a_callable_may_stop_its_own_server():
    with inprocess_models() as models:

        def infer(requests: Any) -> Any:
            assert models.triton.stop()
            return [{"y": request["x"]} for request in requests]

        assert models.ask(models.bind(infer, max_batch_size=1), 3) == 3
        wait_for(lambda: not models.triton.is_alive(), "the server to stop")


def test_a_server_that_ends_leaves_the_others_their_memory():
    with inprocess_models() as models:
        with inprocess_models() as others:
            others.bind(lambda requests: [{"y": request["x"]} for request in requests])
        # The server keeps the control signals of sequences in the memory that all servers share.
        name = models.bind(lambda requests: [{"y": request["x"]} for request in requests], batcher=SequenceBatcher())
        assert models.ask(name, 3, correlation_id=1, flags=1) == 3


def test_a_callable_may_call_other_models_of_its_server():
    with inprocess_models() as models:
        inner = models.bind(lambda requests: [{"y": 3 * request["x"]} for request in requests], max_batch_size=1)

        def infer(requests: Any) -> Any:
            return [{"y": request["x"] * 0 + models.ask(inner, request["x"][0, 0])} for request in requests]

        assert models.ask(models.bind(infer, max_batch_size=1), 2) == 6


def run(ending: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, ending],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("ending", ["soon", "late"])
def test_the_interpreter_ends_though_requests_are_in_flight(ending: str):
    process = run(ending)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert "Fatal" not in errors
    assert ("did not end well" in errors) == (ending == "late")


def test_a_signal_ends_serving_when_the_requests_in_flight_are_answered():
    process = run("signal")
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert output == "[1.0, 1.0, 1.0, 1.0]\n"
