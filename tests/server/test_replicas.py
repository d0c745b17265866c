"""Two servers behind HAProxy with deploy/haproxy.cfg: nothing fails while one is drained, stopped and started."""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.server.backends import LIBRARY
from pytriton.server.installation import EDGE
from pytriton.triton import Triton, TritonConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
NAMES = ("a", "b")  # of the servers, in HAProxy and here
MODEL = "scale"  # whose readiness deploy/haproxy.cfg asks for
X = np.ones((1, 1), np.float64)
UNTIL_BOTH_ANSWERED = 20

pytestmark = [
    pytest.mark.either_proxy,
    pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed"),
    pytest.mark.skipif(not LIBRARY.with_name(EDGE).is_file(), reason="the edge was not compiled here"),
]


class Replicas:
    """Two servers, whose model answers with the number of its server, and HAProxy before them."""

    def __init__(self, configs: dict[str, TritonConfig], http: int, grpc: int, admin: Path) -> None:
        self.http, self.grpc = f"http://{LOCALHOST}:{http}", f"grpc://{LOCALHOST}:{grpc}"
        self.environment = {
            "MODELS_ADMIN": str(admin),
            "MODELS_HTTP": f"{LOCALHOST}:{http}",
            "MODELS_GRPC": f"{LOCALHOST}:{grpc}",
        }
        for name, config in configs.items():
            self.environment |= {
                f"MODELS_{name.upper()}_HTTP": f"{LOCALHOST}:{config.http_port}",
                f"MODELS_{name.upper()}_GRPC": f"{LOCALHOST}:{config.grpc_port}",
                f"MODELS_{name.upper()}_HTTP_HOST": LOCALHOST,
                f"MODELS_{name.upper()}_HTTP_PORT": str(config.http_port),
            }
        self._configs, self._admin = configs, admin
        self._servers: dict[str, Triton] = {}

    def start(self, name: str) -> None:
        number = NAMES.index(name)

        @batch
        def answer(x):
            return {"server": np.full((len(x), 1), number, np.int64)}

        triton = Triton(config=self._configs[name])
        self._servers[name] = triton
        triton.bind(
            MODEL,
            answer,
            inputs=[Tensor(name="x", shape=(1,), dtype=np.float64)],
            outputs=[Tensor(name="server", shape=(1,), dtype=np.int64)],
            config=ModelConfig(max_batch_size=8),
        )
        triton.run()

    def stop(self, name: str) -> None:
        self._servers.pop(name).stop()

    def stop_all(self) -> None:
        for name in [*self._servers]:
            self.stop(name)

    def command(self, text: str) -> str:
        """The answer to a command of HAProxy's administration."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_S)
            connection.connect(str(self._admin))
            connection.sendall(text.encode() + b"\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def set_state(self, name: str, state: str) -> None:
        for backend in ("http", "grpc"):
            assert not self.command(f"set server {backend}/{name} state {state}").strip()

    def is_up(self, name: str) -> bool:
        """Whether the checks of both backends found the server ready."""
        return all(row["status"].startswith("UP") for row in self._statistics(name))

    def is_idle(self, name: str) -> bool:
        """Whether HAProxy waits for no answer of the server."""
        return all(row["scur"] == "0" for row in self._statistics(name))

    def _statistics(self, name: str) -> list[dict[str, str]]:
        rows = csv.DictReader(self.command("show stat").removeprefix("# ").splitlines())
        found = [row for row in rows if row["svname"] == name]
        assert [row["pxname"] for row in found] == ["http", "grpc"]
        return found


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    admin = tmp_path_factory.mktemp("haproxy") / "admin.sock"
    with ExitStack() as stack:
        configs = {name: stack.enter_context(local_config(http_frontend="native")) for name in NAMES}
        http, grpc = stack.enter_context(reserved_ports(2))
        made = Replicas(configs, http, grpc, admin)
        stack.callback(made.stop_all)
        for name in NAMES:
            made.start(name)
        balancer = subprocess.Popen(["haproxy", "-db", "-f", CONFIGURATION], env={**os.environ, **made.environment})
        stack.callback(balancer.wait)
        stack.callback(balancer.kill)
        wait_for(admin.exists, "HAProxy to start")
        wait_for(lambda: all(map(made.is_up, NAMES)), "both servers to be up")
        yield made


@contextmanager
def load(*urls: str) -> Iterator[tuple[Counter[int], list[Exception]]]:
    """Callers that send one request after the other: which servers answered, and what failed.

    Leaving the block ends the callers.
    """
    answers: Counter[int] = Counter()
    failures: list[Exception] = []
    ending, lock = threading.Event(), threading.Lock()

    def call(url: str) -> None:
        with ModelClient(url, MODEL, inference_timeout_s=DEADLINE_S) as client:
            while not ending.is_set():
                try:
                    server = int(client.infer_batch(X)["server"][0, 0])
                except Exception as error:
                    failures.append(error)
                    return
                with lock:
                    answers[server] += 1

    callers = [threading.Thread(target=call, args=(url,)) for url in urls]
    for caller in callers:
        caller.start()
    try:
        yield answers, failures
    finally:
        ending.set()
        for caller in callers:
            caller.join(2 * DEADLINE_S)


def more_answers(answers: Counter[int], failures: list[Exception], *names: str) -> Callable[[], bool]:
    """Whether these servers have answered further requests since this call, or one failed."""
    before = answers.copy()
    numbers = [NAMES.index(name) for name in names]
    return lambda: bool(failures) or all(answers[each] >= before[each] + UNTIL_BOTH_ANSWERED for each in numbers)


def test_no_request_fails_while_a_drained_server_is_stopped_and_started_again(replicas):
    with load(replicas.http, replicas.http, replicas.grpc, replicas.grpc) as (answers, failures):
        wait_for(more_answers(answers, failures, "a", "b"), "both servers to answer")
        replicas.set_state("a", "drain")
        wait_for(lambda: replicas.is_idle("a"), "the answers of the server")
        replicas.stop("a")
        wait_for(more_answers(answers, failures, "b"), "the other server to answer")
        replicas.start("a")
        replicas.set_state("a", "ready")
        wait_for(more_answers(answers, failures, "a", "b"), "the server to be used again")
    assert failures == []
    wait_for(lambda: replicas.is_up("a"), "the server to be up")


def test_no_request_over_http_fails_while_a_server_is_stopped_without_a_word_to_the_balancer(replicas):
    with load(replicas.http, replicas.http, replicas.http) as (answers, failures):
        wait_for(more_answers(answers, failures, "a", "b"), "both servers to answer")
        replicas.stop("b")
        wait_for(more_answers(answers, failures, "a"), "the other server to answer")
        replicas.start("b")
        wait_for(more_answers(answers, failures, "a", "b"), "the server to be used again")
    assert failures == []
    wait_for(lambda: replicas.is_up("b"), "the server to be up")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_with_the_header_of_a_sequence_go_to_one_server_and_others_to_both(replicas, protocol):
    with ModelClient(getattr(replicas, protocol), MODEL) as client:

        def server(**headers: str) -> int:
            return int(client.infer_batch(X, headers=headers)["server"][0, 0])

        assert {server() for _ in range(UNTIL_BOTH_ANSWERED)} == {0, 1}
        for name in ("s-1", "s-2"):
            assert len({server(**{"x-sequence": f"{protocol}-{name}"}) for _ in range(UNTIL_BOTH_ANSWERED)}) == 1


def test_what_concerns_one_server_is_refused(replicas):
    region = {"key": "/region", "offset": 0, "byte_size": 8}
    for path, body in (
        ("/v2/systemsharedmemory/region/r/register", region),
        (f"/v2/repository/models/{MODEL}/unload", {}),
        (f"/v2/models/{MODEL}/trace/setting", {}),
    ):
        with pytest.raises(HTTPError) as caught:
            urlopen(Request(replicas.http + path, json.dumps(body).encode()), timeout=DEADLINE_S)
        with caught.value as answer:
            assert answer.code == 403
            assert "Request forbidden by administrative rules" in answer.read().decode()
