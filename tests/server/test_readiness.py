"""Waiting, in another thread, until everything can answer."""

import os
import signal
import threading

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.triton import TritonLifecyclePolicy
from tests.server.own_server import address, server_of, serving
from tests.server.processes import DEADLINE_S, is_alive, wait_for

pytestmark = pytest.mark.either_proxy

X = np.array([[1.0, 2.0]], np.float32)
POLICY = TritonLifecyclePolicy(launch_triton_on_startup=False)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_it_lasts_until_server_and_models_can_answer_also_after_a_restart(free_config, protocol):
    def assert_answers():
        triton.wait_for_ready(DEADLINE_S)
        with ModelClient(address(free_config, protocol), "m", ensure_model_is_ready=False) as client:
            assert np.array_equal(client.infer_batch(X)["y"], X * 2)

    with serving(free_config, triton_lifecycle_policy=POLICY) as triton:
        with pytest.raises(TimeoutError, match=r"not ready within 0\.1 s"):
            triton.wait_for_ready(0.1)
        start = threading.Thread(target=triton.run)
        start.start()
        assert_answers()
        start.join()
        killed = server_of(free_config)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not is_alive(killed), "the server to die")
        assert_answers()


def test_it_ends_when_there_is_nothing_to_wait_for(free_config):
    with serving(free_config, triton_lifecycle_policy=POLICY) as triton:
        timer = threading.Timer(0.1, triton.__exit__)
        timer.start()
        try:
            with pytest.raises(PyTritonInvalidOperationError, match="was stopped"):
                triton.wait_for_ready(DEADLINE_S)
        finally:
            timer.join()
