"""An instance on a real socket: it serves its proxy, and says when it is connected, busy, quiet and gone."""

import asyncio
import json
import math
import os
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.wire import connect as connecting
from pytriton.wire.arena import Arena
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.connect import connect, short_path
from pytriton.wire.frames import ERROR, REQUEST, RESPONSE, Frame
from pytriton.wire.tensors import tensor
from pytriton.worker.context import Binding, TritonContext, current_binding
from pytriton.worker.inference import Inference, Options
from pytriton.worker.instance import Instance
from pytriton.worker.serial import SerialExecutor
from tests.server.processes import wait_for

TIMEOUT_S = 30.0
CONFIG = TritonModelConfig(
    "m", inputs=[TensorSpec("x", (-1,), np.float32)], outputs=[TensorSpec("y", (-1,), np.float32)]
)
X = np.array([[1, 2]], np.float32)


class Gate:
    """A callable that waits until it is let go."""

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, requests):
        self.entered.set()
        assert self.open.wait(TIMEOUT_S)
        return double(requests)


class Workers:
    """Starts instances in a folder, and ends them and their proxies."""

    def __init__(self, folder):
        self.folder = folder
        self.disconnects = threading.Semaphore(0)
        self.threads_before = set(threading.enumerate())
        self.instances, self.proxies = [], []

    def start(self, function, name="socket", context=None):
        self.binding = Binding(function, CONFIG, context or TritonContext())
        executor = SerialExecutor(Inference(function, CONFIG, Options(), lambda: None))
        self.instances.append(Instance(str(self.folder / name), self.binding, executor, self.disconnects.release))
        return self.instances[-1]

    def connect(self, name="socket", timeout_s=TIMEOUT_S):
        self.proxies.append(connect(str(self.folder / name), {}, timeout_s))
        return self.proxies[-1]

    def end(self):
        for proxy in self.proxies:
            proxy.close()
        for instance in self.instances:
            instance.close()
        self.join()

    def join(self):
        """Wait for the end of all threads that instances started."""
        for thread in set(threading.enumerate()) - self.threads_before:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


@pytest.fixture
def workers(tmp_path):
    workers = Workers(tmp_path)
    yield workers
    workers.end()


def double(requests):
    return [{"y": request["x"] * 2} for request in requests]


def send(proxy, x=X):
    proxy.send(Frame(REQUEST, 1, 1), [tensor(0, x, 0)])


def answer(proxy):
    reply = proxy.receive()
    return reply.array(reply.tensors[0]).tolist() if reply.kind == RESPONSE else json.loads(reply.metadata)["message"]


def infer(proxy, x=X):
    send(proxy, x)
    return answer(proxy)


def test_an_instance_is_alive_and_listens_before_any_proxy_comes(workers):
    instance = workers.start(double)
    assert instance.is_alive()
    assert not instance.is_connected()
    assert instance.wait_disconnected(0.0)
    assert instance.quiet_s() == math.inf
    assert stat.S_ISSOCK((workers.folder / "socket").stat().st_mode)


def test_a_proxy_for_which_no_thread_can_start_is_served_when_it_connects_again(workers, monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    instance = workers.start(double)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(PeerGoneError):
            workers.connect(timeout_s=0.5)  # it tries again meanwhile
        wait_for(lambda: not instance.is_connected(), "the connection to be dropped")
    assert "a proxy cannot be served: can't start new thread" in caplog.text
    assert infer(workers.connect()) == [[2, 4]]
    assert instance.is_alive()


def test_batches_are_answered_one_after_the_other(workers):
    instance = workers.start(double)
    proxy = workers.connect()
    assert [infer(proxy, np.full((1, 3), value, np.float32)) for value in range(5)] == [
        [[2 * value] * 3] for value in range(5)
    ]
    assert instance.is_connected()
    assert not instance.wait_disconnected(0.0)


def test_the_callable_runs_in_a_thread_that_knows_its_binding(workers):
    seen = []

    def function(requests):
        seen.append((current_binding.get(), threading.current_thread().name, threading.get_ident()))
        return double(requests)

    workers.start(function, "model.3")
    proxy = workers.connect("model.3")
    infer(proxy)
    infer(proxy)
    assert seen[0][0] is workers.binding
    assert seen[0][1] == "pytriton-m-model.3"
    assert seen[0] == seen[1]


def test_an_instance_is_busy_while_a_batch_is_answered_and_quiet_after(workers):
    gate = Gate()
    instance = workers.start(gate)
    proxy = workers.connect()
    before = time.monotonic()
    send(proxy)
    assert gate.entered.wait(TIMEOUT_S)
    assert instance.quiet_s() == 0.0
    gate.open.set()
    answer(proxy)
    proxy.close()
    assert instance.wait_disconnected(TIMEOUT_S)
    assert 0 < instance.quiet_s() <= time.monotonic() - before


def test_the_end_of_a_proxy_is_noticed_and_the_next_one_served(workers):
    instance = workers.start(double)
    for count in range(3):
        proxy = workers.connect()
        assert infer(proxy) == [[2, 4]]
        assert instance.is_connected()
        proxy.close()
        assert instance.wait_disconnected(TIMEOUT_S)
        assert workers.disconnects.acquire(timeout=TIMEOUT_S), count
        assert not instance.is_connected()
        assert instance.is_alive()


def test_a_second_proxy_is_served_while_the_first_is_there_but_never_at_once(workers):
    running = []

    def function(requests):
        running.append(1)
        assert len(running) == 1
        gate(requests)
        running.pop()
        return double(requests)

    gate = Gate()
    instance = workers.start(function)
    first, second = workers.connect(), workers.connect()
    send(first)
    assert gate.entered.wait(TIMEOUT_S)
    gate.entered.clear()
    send(second)
    gate.open.set()
    assert answer(first) == answer(second) == [[2, 4]]
    first.close()
    assert workers.disconnects.acquire(timeout=TIMEOUT_S)
    assert instance.is_connected()
    assert infer(second) == [[2, 4]]


def test_closing_an_idle_instance_ends_its_threads_and_removes_its_socket(workers):
    instance = workers.start(double)
    workers.start(double, "other")
    workers.connect("other")
    for each in workers.instances:
        each.close()
        each.close()
        assert not each.is_alive()
    workers.join()
    assert os.listdir(workers.folder) == []
    assert instance.wait_disconnected(0.0)
    with pytest.raises(PeerGoneError):
        connect(str(workers.folder / "socket"), {}, 0.0)


def test_closing_while_the_callable_runs_lets_it_return_and_ends_the_thread(workers):
    gate = Gate()
    instance = workers.start(gate)
    proxy = workers.connect()
    send(proxy)
    assert gate.entered.wait(TIMEOUT_S)
    instance.close()
    assert not instance.is_alive()
    assert not instance.wait_disconnected(0.0)  # its batch is in flight
    with pytest.raises(PeerGoneError):
        proxy.receive()
    gate.open.set()
    workers.join()
    assert instance.wait_disconnected(0.0)


@pytest.mark.parametrize("connected", [True, False])
def test_closing_closes_the_event_loop_of_coroutines(workers, connected):
    loops = []

    async def function(requests):
        loops.append(asyncio.get_running_loop())
        return double(requests)

    instance = workers.start(function)
    for _ in range(2):
        proxy = workers.connect()
        assert infer(proxy) == [[2, 4]]
        if not connected:
            proxy.close()
            assert instance.wait_disconnected(TIMEOUT_S)
    assert loops[0] is loops[1]
    assert not loops[0].is_closed()
    instance.close()
    workers.join()
    assert loops[0].is_closed()


def test_wait_disconnected_wakes_when_the_proxy_leaves(workers):
    instance = workers.start(double)
    proxy = workers.connect()
    infer(proxy)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.wait_disconnected, TIMEOUT_S)
        proxy.close()
        assert waiting.result() is True


def test_wait_disconnected_wakes_when_the_instance_is_closed(workers):
    gate = Gate()
    instance = workers.start(gate)
    send(workers.connect())
    assert gate.entered.wait(TIMEOUT_S)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.wait_disconnected, TIMEOUT_S)
        instance.close()
        assert waiting.result() is False  # the batch is in flight, but nobody will wait for its answer
    gate.open.set()


def test_a_bad_frame_ends_that_connection_alone(workers, caplog):
    instance = workers.start(double)
    proxy = workers.connect()
    proxy._socket.send(b"noise")
    with pytest.raises(PeerGoneError):
        proxy.receive()
    assert instance.wait_disconnected(TIMEOUT_S)
    assert "a proxy sent a bad frame" in caplog.text
    assert infer(workers.connect()) == [[2, 4]]


def test_somebody_who_is_no_proxy_does_not_hold_the_others_up(workers):
    workers.start(double)
    with stranger(workers), stranger(workers) as noisy:
        noisy.send(b"hello?")
        assert infer(workers.connect()) == [[2, 4]]


def stranger(workers):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with short_path(str(workers.folder / "socket")) as address:
        connection.connect(address)
    return connection


def test_outputs_that_do_not_fit_are_an_error_of_their_batch(workers, monkeypatch):
    monkeypatch.setattr(connecting, "Arena", lambda: Arena(1 << 20))
    workers.start(lambda requests: [{"y": np.zeros((1, int(request["x"][0, 0])), np.float32)} for request in requests])
    proxy = workers.connect()
    assert infer(proxy, np.full((1, 1), 1 << 19, np.float32)).startswith("ArenaFullError: no room for a batch of")
    assert infer(proxy, np.full((1, 1), 3, np.float32)) == [[0, 0, 0]]


def test_inputs_that_the_callable_keeps_never_change(workers):
    kept = []

    def keep(requests):
        if len(kept) < 3:
            kept.append(requests[0]["x"])
        return double(requests)

    workers.start(keep)
    proxy = workers.connect()
    for value in range(200):
        infer(proxy, np.full((1, 20_000), value, np.float32))
    assert [np.unique(view).tolist() for view in kept] == [[0], [1], [2]]


def test_inputs_that_are_not_kept_share_one_place(workers):
    workers.start(double)
    proxy = workers.connect()
    regions = set()
    for value in range(100):
        frame = Frame(REQUEST, 1, 1)
        proxy.send(frame, [tensor(0, np.full((1, 20_000), value, np.float32), 0)])
        regions.add(frame.region)
        reply = proxy.receive()
        assert reply.array(reply.tensors[0])[0, 0] == 2 * value
        del reply
    assert len(regions) <= 2


def test_a_callable_that_raises_anything_goes_on_serving(workers):
    def function(requests):
        kind = [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration][int(requests[0]["x"][0, 0])]
        raise kind("no")

    workers.start(function)
    proxy = workers.connect()
    for code, name in enumerate(["ValueError", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "StopIteration"]):
        assert infer(proxy, np.full((1, 1), code, np.float32)) == f"{name}: no"


def test_a_path_longer_than_a_socket_address_works(workers):
    name = "d" * 150
    (workers.folder / name).mkdir()
    workers.start(double, f"{name}/socket")
    assert infer(workers.connect(f"{name}/socket")) == [[2, 4]]


def test_a_path_that_is_taken_is_an_error(workers):
    workers.start(double)
    with pytest.raises(OSError, match="Address already in use"):
        workers.start(double)
    assert infer(workers.connect()) == [[2, 4]]


def test_an_error_reply_is_of_the_same_batch(workers):
    workers.start(lambda requests: 1 / 0)
    proxy = workers.connect()
    proxy.send(Frame(REQUEST, 77, 1), [tensor(0, X, 0)])
    reply = proxy.receive()
    assert (reply.kind, reply.number, reply.requests) == (ERROR, 77, 1)
