"""``Triton.statistics``, over both protocols that the program may talk to its server with."""

from dataclasses import replace

import pytest

from pytriton.client import ModelClient
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonModelControlError
from pytriton.model_config import ModelConfig
from pytriton.triton import Triton
from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.own_server import TENSORS, address, double
from tests.server.processes import wait_for


@pytest.fixture(scope="module", params=["http", "grpc"])
def serving(request):
    """A protected server that its program talks to over HTTP, or over gRPC because HTTP is off."""
    with local_config() as config:
        config = config if request.param == "http" else replace(config, allow_http=False)
        with Triton(config=config) as triton:
            for version in (1, 2):
                triton.bind("m", double, *TENSORS, model_version=version, config=ModelConfig(max_batch_size=4))
            triton.bind("other", double, *TENSORS)
            yield triton, address(config, request.param)


def test_requests_are_counted_by_model_and_version(serving):
    triton, url = serving
    with ModelClient(url, "m", "2") as client:
        for rows in (1, 3, 3):
            client.infer_batch(filled(1, rows=rows))
    wait_for(lambda: triton.statistics("m")[1].success.count == 3, "the requests to be counted")
    first, second = triton.statistics("m")
    assert (first.name, first.version, first.success.count, first.last_inference) == ("m", 1, 0, None)
    assert (second.version, second.inference_count, second.execution_count) == (2, 7, 3)
    assert {rows: batch.compute_infer.count for rows, batch in second.batches.items()} == {1: 1, 3: 2}
    assert 0 < second.compute_infer.mean_s <= second.success.total_s
    assert second.last_inference is not None


def test_without_a_name_all_models_come(serving):
    triton, _ = serving
    assert [(found.name, found.version) for found in triton.statistics()] == [("m", 1), ("m", 2), ("other", 1)]


def test_an_unknown_model_is_an_error(serving):
    triton, _ = serving
    with pytest.raises(PyTritonModelControlError, match="unknown"):
        triton.statistics("unknown")


def test_a_server_that_does_not_run_has_no_statistics(free_config):
    triton = Triton(config=free_config)
    with pytest.raises(PyTritonInvalidOperationError, match="no server yet"):
        triton.statistics()
    triton.__exit__()
    with pytest.raises(PyTritonInvalidOperationError, match="was stopped"):
        triton.statistics()
