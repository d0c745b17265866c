"""A model repository of the user's own, beside the models that are bound."""

import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonModelControlError
from pytriton.model_config import ModelConfig
from pytriton.triton import Triton
from tests.server.conftest import local_config
from tests.server.gated import Gated
from tests.server.own_server import TENSORS, address, double, server_of
from tests.server.processes import DEADLINE_S, wait_for

pytestmark = pytest.mark.either_proxy

X = np.array([[1.0, 2.0]], np.float32)
BACKEND_MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.copied(request)]) for request in requests]

    def copied(self, request):
        return pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(request, "x").as_numpy())
"""
BROKEN_MODEL = "raise RuntimeError('no such device')"
CONFIG = """
backend: "python"
max_batch_size: 4
input {{ name: "x" data_type: TYPE_FP32 dims: [-1] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [-1] }}
"""
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input {{ name: "x" data_type: TYPE_FP32 dims: [-1] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [-1] }}
ensemble_scheduling {{
  step {{ model_name: "{model}" model_version: -1
         input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "between" }} }}
  step {{ model_name: "{model}" model_version: -1
         input_map {{ key: "x" value: "between" }} output_map {{ key: "y" value: "y" }} }}
}}
"""
TWO_MODELS = """
platform: "ensemble"
max_batch_size: 4
input {{ name: "x" data_type: TYPE_FP32 dims: [-1] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [-1] }}
ensemble_scheduling {{
  step {{ model_name: "first" model_version: -1
         input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "between" }} }}
  step {{ model_name: "second" model_version: -1
         input_map {{ key: "x" value: "between" }} output_map {{ key: "y" value: "y" }} }}
}}
"""


def write(repository, name, config, source=None, **names):
    """One model's folder."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config.format(**names))
    if source is not None:
        (repository / name / "1" / "model.py").write_text(source)


@contextmanager
def beside(config, repository, **options):
    with Triton(config=replace(config, model_repository=repository), **options) as triton:
        yield triton


def bind(triton, name="double", function=double):
    triton.bind(name, function, *TENSORS, config=ModelConfig(max_batch_size=4))


def infer(config, model, protocol="http"):
    with ModelClient(address(config, protocol), model, init_timeout_s=1) as client:
        return client.infer_batch(X)["y"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A model, one that cannot be loaded, and two ensembles: of a model that is bound early, and of one bound late."""
    folder = tmp_path_factory.mktemp("repository")
    write(folder, "copy", CONFIG, BACKEND_MODEL)
    write(folder, "broken", CONFIG, BROKEN_MODEL)
    write(folder, "twice", ENSEMBLE, model="double")
    write(folder, "late", ENSEMBLE, model="later")
    return folder


@pytest.fixture
def ensembles(tmp_path):
    """A repository without models that take time to load."""
    write(tmp_path, "twice", ENSEMBLE, model="double")
    return tmp_path


@pytest.fixture(scope="module")
def config():
    with local_config() as config:
        yield config


@pytest.fixture(scope="module")
def triton(config, repository):
    with beside(config, repository) as triton:
        bind(triton)
        yield triton


@pytest.fixture(params=["http", "grpc"])
def protocol(request):
    return request.param


def test_models_of_the_repository_and_bound_ones_are_served(triton, config, protocol):
    assert np.array_equal(infer(config, "copy", protocol), X)
    assert np.array_equal(infer(config, "double", protocol), X * 2)


def test_an_ensemble_uses_a_bound_model(triton, config, protocol):
    assert np.array_equal(infer(config, "twice", protocol), X * 4)


def test_an_ensemble_is_served_when_its_model_is_bound_at_last(triton, config):
    with pytest.raises(PyTritonClientError):
        infer(config, "late")
    bind(triton, "later")
    assert np.array_equal(infer(config, "late"), X * 4)
    triton.rebind("later", lambda requests: [{"y": request["x"] * 3} for request in requests])
    assert np.array_equal(infer(config, "late"), X * 9)


def test_a_broken_model_is_a_warning_with_its_reason_and_not_repeated(free_config, tmp_path, caplog):
    write(tmp_path, "broken", CONFIG, BROKEN_MODEL)
    with beside(free_config, tmp_path) as triton:
        bind(triton)
        assert np.array_equal(infer(free_config, "double"), X * 2)
        assert triton.is_alive()
    warnings = [text for text in texts_of(caplog) if "broken" in text]
    assert len(warnings) == 1
    assert "model broken of the model repository is not served" in warnings[0]
    assert "no such device" in warnings[0]


def texts_of(caplog):
    """Warnings and worse that are not the server's own."""
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [record.getMessage() for record in records if record.name != "pytriton.server"]


def warnings_of(caplog):
    """Those about models of the repository, without reasons."""
    found = [text.partition(":")[0] for text in texts_of(caplog)]
    return [text for text in found if "of the model repository" in text]


def test_an_ensemble_whose_models_are_bound_one_by_one_is_no_warning(free_config, tmp_path, caplog):
    write(tmp_path, "both", TWO_MODELS)
    with beside(free_config, tmp_path) as triton:
        bind(triton, "first")
        bind(triton, "second")
        triton.run()
        assert np.array_equal(infer(free_config, "both"), X * 4)
    assert warnings_of(caplog) == []


def test_an_ensemble_that_lacks_a_model_is_a_warning_which_is_taken_back_when_it_is_bound(
    free_config, tmp_path, caplog
):
    write(tmp_path, "both", TWO_MODELS)
    with beside(free_config, tmp_path) as triton:
        bind(triton, "first")
        for _ in range(2):
            triton.run()
        assert warnings_of(caplog) == ["model both of the model repository is not served"]
        for _ in range(2):
            bind(triton, "second")
            triton.unbind("second")
        bind(triton, "second")
        assert np.array_equal(infer(free_config, "both"), X * 4)
    assert warnings_of(caplog)[1:] == ["model both of the model repository is served now"]


def test_a_broken_model_that_a_client_loads_later_is_known_to_be_served(free_config, tmp_path, caplog):
    write(tmp_path, "copy", CONFIG, BROKEN_MODEL)
    with beside(free_config, tmp_path) as triton:
        (tmp_path / "copy" / "1" / "model.py").write_text(BACKEND_MODEL)
        triton._server.load("copy")
        bind(triton)
        bind(triton, "another")
        assert np.array_equal(infer(free_config, "copy"), X)
    assert warnings_of(caplog) == [
        "model copy of the model repository is not served",
        "model copy of the model repository is served now",
    ]


def test_a_name_that_is_in_the_repository_too_is_refused_with_where(triton, config, repository):
    for _ in range(2):
        with pytest.raises(PyTritonModelControlError, match="copy"):
            bind(triton, "copy")
    assert np.array_equal(infer(config, "copy"), X)


def test_models_bound_before_the_start_may_be_used_by_an_ensemble(free_config, ensembles, caplog):
    triton = Triton(config=replace(free_config, model_repository=ensembles))
    bind(triton)
    with triton:
        assert np.array_equal(infer(free_config, "twice"), X * 4)
    assert not caplog.records


def test_a_server_that_comes_back_has_the_repository_again(free_config, ensembles):
    with beside(free_config, ensembles) as triton:
        bind(triton)
        server = server_of(free_config)
        os.kill(server, signal.SIGKILL)

        def serves():
            try:
                return np.array_equal(infer(free_config, "twice"), X * 4)
            except PyTritonClientError:
                return False

        wait_for(serves, "the ensemble to be served again")
        assert server_of(free_config) != server


def test_stop_answers_what_an_ensemble_works_on(free_config, ensembles):
    gated = Gated()
    with ThreadPoolExecutor(2) as pool, beside(free_config, ensembles) as triton:
        bind(triton, function=gated)
        made = pool.submit(infer, free_config, "twice")
        gated.wait_called()
        stopped = pool.submit(triton.stop)
        wait_for(lambda: triton._lifecycle.stopping, "the stop to begin")
        gated.gate.open()
        assert np.array_equal(made.result(DEADLINE_S), X * 4)
        assert stopped.result(DEADLINE_S) is True
