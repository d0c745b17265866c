"""Workers as actors of Ray, on a cluster of three nodes, all on this machine: `make test-cluster` runs this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from pytriton.workers import RayWorkers
from tests.server.conftest import local_config
from tests.server.ports import reserved_ports
from tests.server.processes import is_alive, wait_for

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-cluster installs it")
from ray.cluster_utils import Cluster  # noqa: E402

X = np.ones((1, 2), np.float64)
START_S = 180.0


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    ray.init(address=made.address, logging_level="WARNING")
    nodes = [made.add_node(num_cpus=1, resources={"worker": 1}) for _ in range(2)]
    made.wait_for_nodes()
    yield made, nodes
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def triton(cluster):
    with local_config() as config, Triton(config=config) as server:
        server.url = f"http://127.0.0.1:{config.http_port}"
        yield server


def make_process():
    """Answers with the actor's process and node."""
    import os

    import numpy as np
    import ray

    from pytriton import batch

    node = int(ray.get_runtime_context().get_node_id()[:8], 16)

    @batch
    def process(x):
        return {"y": np.repeat([[os.getpid(), node]], len(x), 0).astype(np.float64)}

    return process


def make_calling():
    """Calls the model of another actor."""
    from pytriton import ModelHandle, batch

    def calling(x, process):
        return {"y": process(x)["y"]}

    calling.__annotations__["process"] = ModelHandle  # this module's annotations are texts
    return batch(calling)


def make_shared():
    """As ``make_process``, with the parent's process in place of the node: that of the template."""
    import os

    import numpy as np

    from pytriton import batch

    made_by = os.getpid()

    @batch
    def process(x):
        return {"y": np.repeat([[os.getpid(), made_by]], len(x), 0).astype(np.float64)}

    return process


def make_misfit_once(calls):
    """As ``make_process``, but at the third call for an input that the model has not."""
    from pytriton import batch

    with open(calls, "a") as file:
        file.write("x")
    return batch(lambda other: {"y": other}) if len(calls.read_text()) == 3 else make_process()


def make_unrecoverable(ended):
    """As ``make_process``, but the first batch finds that the worker cannot go on."""
    from pytriton.exceptions import PyTritonUnrecoverableError

    process = make_process()

    def unrecoverable(requests):
        if not ended.exists():
            ended.touch()
            raise PyTritonUnrecoverableError("the GPU is lost")
        return process(requests)

    return unrecoverable


def make_threaded():
    import threading

    threading.Thread(target=threading.Event().wait, name="refresher", daemon=True).start()
    return make_shared()


def broken():
    raise ValueError("no weights")


def bind(triton, name, factory, **options):
    triton.bind(
        name,
        RayWorkers(
            factory, num_cpus=0.5, resources={"worker": 0.1}, heartbeat_s=0.5, start_timeout_s=START_S, **options
        ),
        inputs=[Tensor(name="x", shape=(2,), dtype=np.float64)],
        outputs=[Tensor(name="y", shape=(2,), dtype=np.float64)],
        config=ModelConfig(max_batch_size=1),
    )


def answers(triton, name, number=20):
    """Processes and nodes that have answered some requests."""
    with ModelClient(triton.url, name, inference_timeout_s=60) as client:
        return {tuple(client.infer_batch(X)["y"][0].astype(int)) for _ in range(number)}


def test_actors_answer_are_scaled_and_come_back_when_they_die_with_their_node(cluster, triton):
    made, nodes = cluster
    bind(triton, "process", make_process, count=2, scheduling_strategy="SPREAD", idempotent=True)
    wait_for(lambda: len({node for _, node in answers(triton, "process")}) == 2, "both nodes to answer", START_S)

    triton.scale("process", 3)
    wait_for(lambda: len(answers(triton, "process")) == 3, "the third actor to answer", START_S)
    triton.scale("process", 2)
    wait_for(lambda: len(answers(triton, "process")) == 2, "the third actor to be gone", START_S)

    before = answers(triton, "process")
    victim, _ = next(iter(before))
    os.kill(victim, signal.SIGKILL)
    wait_for(
        lambda: len(now := answers(triton, "process")) == 2 and victim not in {process for process, _ in now},
        "Ray to start the actor again",
        START_S,
    )
    made.remove_node(nodes[1])
    wait_for(
        lambda: len({node for _, node in answers(triton, "process")}) == 1 and len(answers(triton, "process")) == 2,
        "Ray to move the actors to the node that is left",
        START_S,
    )
    triton.unbind("process")


def test_a_factory_that_fails_or_cannot_be_shared_is_an_error_of_bind(triton):
    with pytest.raises(PyTritonWorkerError, match="no weights"):
        bind(triton, "broken", broken)
    with pytest.raises(PyTritonWorkerError, match=r"the thread 'refresher'.*after_fork.*share=False"):
        bind(triton, "threaded", make_threaded, share=True)
    with pytest.raises(PyTritonValidationError, match="with share=True it is called once for all workers"):
        bind(triton, "device", lambda device: broken(), share=True)


def test_workers_of_an_actor_share_a_template_and_are_forked_again(triton):
    bind(triton, "shared", make_shared, share=True, workers_per_actor=3, idempotent=True)
    before = answers(triton, "shared")
    assert (len(before), len({template for _, template in before})) == (3, 1)
    (victim, template), *others = before
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(now := answers(triton, "shared")) == 3 and {*others} < now, "another one", START_S)
    assert {made_by for _, made_by in answers(triton, "shared")} == {template}
    triton.scale("shared", 2)
    wait_for(lambda: len(answers(triton, "shared", 60)) == 6, "both actors to answer", START_S)
    pids = {pid for each in answers(triton, "shared", 60) for pid in each}
    assert len(pids) == 8
    triton.unbind("shared")
    wait_for(lambda: not any(map(is_alive, pids)), "workers and templates to end with their actors")


@pytest.mark.parametrize(
    ("factory", "options"),
    [(make_misfit_once, {"workers_per_actor": 2, "idempotent": True}), (make_unrecoverable, {"count": 1})],
)
def test_an_actor_whose_workers_have_ended_is_made_again(triton, tmp_path, factory, options):
    bind(triton, "again", partial(factory, tmp_path / "calls"), **options)
    with ModelClient(triton.url, "again", inference_timeout_s=60) as client:
        if factory is make_unrecoverable:
            with pytest.raises(PyTritonClientInferenceServerError, match="the GPU is lost"):
                client.infer_batch(X)
        else:
            os.kill(int(client.infer_batch(X)["y"][0, 0]), signal.SIGKILL)
    expected = options.get("workers_per_actor", 1)
    wait_for(lambda: len(answers(triton, "again")) == expected, "the workers of another actor", START_S)
    if factory is make_misfit_once:
        assert len((tmp_path / "calls").read_text()) == 5
    triton.unbind("again")


SERVED = """
import sys
from pathlib import Path

from pytriton.triton import Triton, TritonConfig
from pytriton.workers import RayWorkers
from tests.cluster.test_ray import bind, make_process

ports = dict(zip(("http_port", "grpc_port", "metrics_port"), map(int, sys.argv[2:])))
with Triton(config=TritonConfig(**ports)) as triton:
    bind(triton, "process", make_process)
    Path(sys.argv[1]).touch()
    triton.serve()
"""


def test_a_program_that_lets_bind_connect_to_ray_ends_well_with_sigterm(cluster, tmp_path):
    made, _ = cluster
    ready = tmp_path / "ready"
    with reserved_ports(3) as ports:
        program = subprocess.Popen(
            [sys.executable, "-c", SERVED, ready, *map(str, ports)], env={**os.environ, "RAY_ADDRESS": made.address}
        )
        try:
            wait_for(lambda: ready.exists() or program.poll() is not None, "the program to serve", START_S)
            program.send_signal(signal.SIGTERM)
            assert program.wait(START_S) == 0
        finally:
            program.kill()
            program.wait()


def test_a_callable_in_an_actor_calls_a_model_of_another_actor(cluster, triton):
    bind(triton, "process", make_process, count=1)
    bind(triton, "calling", make_calling, count=1)
    assert answers(triton, "calling") == answers(triton, "process")
