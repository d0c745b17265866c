"""What forked children do to the process that serves models, and to its requests: nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import AsyncioModelClient, DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientConnectionError
from pytriton.model_config import Tensor
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.other_server import TOKEN, models_of, other_triton
from tests.server.own_server import address
from tests.server.processes import DEADLINE_S, is_alive
from tests.server.proxies import native_part_only
from tests.unit.children import in_child

pytestmark = pytest.mark.either_proxy

KINDS = ["threads", "workers", "remote", pytest.param("inprocess", marks=native_part_only)]
CHILDREN = [
    "exits",
    "raises",
    "ends_at_once",
    "stops",
    "forks_in_a_thread",
    "runs_multiprocessing",
    "runs_a_pool",
    "runs_a_subprocess",
]


class Forking:
    """Runs forking.py up to its last child, which lives on."""

    def __init__(self, kind: str, config, folder: Path) -> None:
        options = {name: value for name, value in config.to_dict().items() if value is not None}
        self.folder = folder
        self.home = folder / "home"
        with (folder / "errors").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.forking", kind, json.dumps(options), address(config, "http")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTRITON_HOME": str(self.home)},
            )
        self.told = {}
        self.read_until("child")
        self.child = self.told["child"][0]

    def read_until(self, last: str) -> None:
        """Read what it tells, up to a certain line."""
        while last not in self.told:
            line = self.process.stdout.readline()
            if not line:
                self.process.kill()
                raise AssertionError(f"after {[*self.told]}: {(self.folder / 'errors').read_text()}")
            if line.startswith('["'):  # else it is of the server
                way, *self.told[way] = json.loads(line)

    def stop(self) -> int:
        """Have it stop, though its child lives on; its exit status."""
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        self.read_until("stop")
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        """Make sure that nothing outlives the test."""
        for pid in {self.process.pid, self.told.get("child", [self.process.pid])[0]}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture(scope="module", params=KINDS)
def forking(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with local_config() as config:
        if request.param == "remote":
            with other_triton(config, TOKEN):
                yield from run(request.param, config, folder)
                assert models_of(config, TOKEN) == set()
        else:
            yield from run(request.param, config, folder)


def run(kind, config, folder):
    forking = Forking(kind, config, folder)
    try:
        yield forking
        assert forking.stop() == 0
        assert forking.told["stop"][0] is True
        assert [*forking.home.iterdir()] == []
        assert is_alive(forking.child)
    finally:
        forking.kill()


@pytest.mark.parametrize("way", CHILDREN)
def test_a_forked_child_leaves_the_server_to_its_parent(forking, way):
    status, answer, alive = forking.told[way]
    assert status == (1 if way == "raises" else 3)
    assert (answer, alive) == (4.0, True)


def test_in_a_forked_child_it_is_stopped_and_calls_say_whose_it_is(forking):
    said, answer, alive = forking.told["tells"]
    assert (said.pop("alive"), said.pop("connected"), said.pop("stopped")) == (False, False, False)
    parent = said.pop("parent")
    assert parent == forking.process.pid
    for text in said.values():
        assert f"object belongs to process {parent}, from which this process was forked; create a new" in text
    assert (answer, alive) == (4.0, True)


def test_a_forked_child_can_serve_models_with_a_server_of_its_own(forking):
    if "serves_with_another" not in forking.told:
        pytest.skip("not where the parent has a server within itself")
    assert forking.told["serves_with_another"] == [3, 4.0, True]


def test_a_forked_child_holds_no_socket_or_pipe_of_its_parents(forking):
    assert forking.told["holds"] == [[], 4.0, True]


@pytest.mark.parametrize("callable_", ["plain", "coroutine"])
def test_a_child_that_a_callable_forks_answers_nothing(forking, callable_):
    assert forking.told[callable_] == [[5.0, 0.0, 1.0, 6.0], 4.0, True]


PID = [Tensor(name="y", shape=(-1,), dtype=np.float64)]


def starting():
    """A callable that starts a program with all descriptors that may be inherited, and answers with its process id."""

    def infer(requests):
        daemon = os.posix_spawnp("sleep", ["sleep", "1000"], os.environ)
        return [{"y": np.full_like(request["x"], daemon, np.float64)} for request in requests]

    return infer


@pytest.fixture(scope="module")
def protocol():
    return "http"


@pytest.mark.parametrize("form", ["threads", "workers"])
def test_what_a_callable_starts_inherits_no_socket_and_no_memory(bind, traffic, form):
    model = bind(starting() if form == "threads" else Processes(starting, count=1), None, PID)
    daemon = int(traffic.infer(model, filled(0))["y"][0, 0])
    try:
        held = {}
        for path in Path(f"/proc/{daemon}/fd").iterdir():
            with suppress(FileNotFoundError):  # the program's loader closes what it opens
                held[path.name] = os.readlink(path)
        ours = ("socket:", "anon_inode:", "/memfd:")
        assert [target for number, target in held.items() if target.startswith(ours) and int(number) > 2] == []
    finally:
        os.kill(daemon, signal.SIGKILL)
        with suppress(ChildProcessError):  # it is a worker's
            os.waitpid(daemon, 0)


def test_a_client_over_grpc_calls_in_parent_and_child(bind, grpc_url):
    model = bind(lambda requests: [{"y": request["x"] * 2} for request in requests])

    def ask(client, value):
        return float(client.infer_batch(filled(value))["y"][0, 0])

    with ModelClient(grpc_url, model) as client:
        assert ask(client, 1) == 2
        assert in_child(lambda: [ask(client, value) for value in (2, 3)]) == [4, 6]
        assert ask(client, 4) == 8


def test_over_grpc_clients_with_an_event_loop_say_that_they_do_not_work_in_a_child(bind, grpc_url):
    model = bind(lambda requests: [{"y": request["x"] * 2} for request in requests])

    async def ask(client):
        async with client:
            await client.infer_batch(filled(1))

    with FuturesModelClient(grpc_url, model) as client:
        assert client.infer_batch(filled(1)).result(DEADLINE_S)["y"][0, 0] == 2

        def work():
            new = AsyncioModelClient(grpc_url, model)
            for call in (lambda: client.infer_batch(filled(1)).result(DEADLINE_S), lambda: asyncio.run(ask(new))):
                with pytest.raises(PyTritonClientClosedError, match="gRPC for asyncio was used in process"):
                    call()

        in_child(work)
        assert client.infer_batch(filled(2)).result(DEADLINE_S)["y"][0, 0] == 4


def test_a_stream_is_the_parents_and_the_child_opens_another(counter, grpc_url):
    with DecoupledModelClient(grpc_url, counter) as client:
        responses = client.infer_batch(filled(3))
        first = next(responses)

        def work():
            with pytest.raises(PyTritonClientConnectionError, match="this one was forked, which gets the responses"):
                next(responses)
            own = len([*client.infer_batch(filled(2))])
            responses.close()
            return own, len([*client.infer_batch(filled(2))])

        assert in_child(work) == (2, 2)
        assert len([first, *responses]) == 3
