"""A model at zero whose factory fails when a request starts its worker."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.processes import wait_for
from tests.server.test_at_zero import answer, states, wait_at_zero
from tests.server.worker_factories import PID, telling_pid

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def protocol():
    return "http"  # it makes no difference to workers


@pytest.mark.parametrize("options", [{}, {"share": True, "keep_template": False}], ids=["", "share"])
def test_requests_for_a_factory_that_fails_are_answered_after_two_processes_or_at_their_deadlines(
    bind, traffic, triton, tmp_path, options
):
    broken = tmp_path / "broken"

    def factory():
        if broken.exists():
            raise RuntimeError("the factory fails")
        return telling_pid()

    model = bind(Processes(factory, minimum=0, idle_s=0.2, **options), None, PID)
    with ModelClient(traffic.url, model, inference_timeout_s=60.0) as client:
        wait_at_zero(triton, model)
        broken.touch()
        with pytest.raises(PyTritonClientInferenceServerError, match="2 processes of the worker have ended as they st"):
            client.infer_batch(filled(0.0))
        with pytest.raises(PyTritonClientInferenceServerError, match="no worker is ready before the request's deadl"):
            client.with_options(server_timeout_s=0.5).infer_batch(filled(0.0))
        broken.unlink()
        wait_for(lambda: "ready" in states(triton, model), "a worker")
        assert client.infer_batch(filled(0.0))["y"][0, 0] > 0


def test_a_rebind_repairs_a_model_whose_template_cannot_load_again(bind, traffic, triton, tmp_path):
    broken = tmp_path / "broken"

    def factory():
        if broken.exists():
            raise RuntimeError("the factory fails")
        return telling_pid()

    workers = Processes(factory, share=True, keep_template=False, minimum=0, idle_s=0.2, start_timeout_s=20.0)
    model = bind(workers, None, PID)
    wait_at_zero(triton, model)
    broken.touch()
    with ThreadPoolExecutor(1) as pool, suppress(PyTritonClientError):
        waiting = pool.submit(answer, traffic, model)
        wait_for(lambda: "restarting" in states(triton, model), "a failed template")
        triton.rebind(model, Processes(telling_pid))
        waiting.result()
    assert answer(traffic, model)
