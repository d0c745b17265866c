"""A bound model: what may be bound, its files and its worker threads."""

import math
import os
import threading
import time

import numpy as np
import pytest

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model import Model
from pytriton.model_config import DeviceKind, DynamicBatcher, ModelConfig, Tensor
from pytriton.model_spec import MAX_NAME, describe
from pytriton.pool.pool import ServedModel
from pytriton.pool.threads import workers_of
from pytriton.wire.connect import connect
from pytriton.wire.frames import REQUEST, Frame
from pytriton.wire.tensors import tensor
from pytriton.worker.context import TritonContext
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation

TIMEOUT_S = 30.0
X, Y = Tensor(name="x", shape=(-1,), dtype=np.float32), Tensor(name="y", shape=(-1,), dtype=np.float32)


def identity(requests):
    return [{"y": request["x"]} for request in requests]


def described(name="m", version=1, inputs=(X,), outputs=(Y,), config=None, instances=1):
    return describe(name, version, list(inputs), list(outputs), config or ModelConfig(), instances)


@pytest.mark.parametrize("name", ["m", "My-Model_1.0", "0", "a" * MAX_NAME, ".m", "m."])
def test_names_that_the_server_can_serve_pass(name):
    assert described(name).model_name == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "../m", ".", "..", "a\n", "\0", "ä", "a" * (MAX_NAME + 1), "a:b", None, 3, b"m"]
)
def test_other_names_are_refused_with_what_is_allowed(name):
    with pytest.raises(PyTritonValidationError, match="letters, digits, dots, underscores and dashes"):
        described(name)


def test_a_callable_and_a_list_of_them_are_instances():
    assert workers_of(identity).functions == [identity]
    assert workers_of([identity, len]).functions == [identity, len]
    assert workers_of((identity, identity)).functions == [identity, identity]


@pytest.mark.parametrize("given", [None, 3, "name", [identity, 3], {identity}, iter([identity])])
def test_what_cannot_be_called_is_refused(given):
    with pytest.raises(PyTritonValidationError, match="give a callable, a list of callables"):
        workers_of(given)


def test_no_callable_at_all_is_refused():
    with pytest.raises(PyTritonValidationError, match="give one callable per model instance"):
        workers_of([])


def test_a_description_holds_what_was_bound():
    nameless = Tensor(shape=(2,), dtype=bytes)
    config = described("m", 3, [X, nameless], [nameless], ModelConfig(max_batch_size=7, response_cache=True), 2)
    assert (config.model_name, config.model_version, config.max_batch_size, config.batching) == ("m", 3, 7, True)
    assert config.instance_group == {DeviceKind.KIND_CPU: 2}
    assert [spec.name for spec in (*config.inputs, *config.outputs)] == ["x", "INPUT_2", "OUTPUT_1"]
    assert config.response_cache.enable
    assert described().response_cache is None


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"inputs": [X, 3]}, PyTritonValidationError, "inputs of model 'm' must be a list of Tensor"),
        ({"outputs": ["y"]}, PyTritonValidationError, "outputs of model 'm' must be a list of Tensor"),
        ({"config": {"batching": True}}, PyTritonValidationError, "config of model 'm' must be a ModelConfig"),
        ({"version": 0}, PyTritonBadParameterError, "model_version of model 'm' is 0"),
        ({"version": True}, PyTritonBadParameterError, "model_version of model 'm' is True"),
        ({"version": "1"}, PyTritonBadParameterError, "model_version of model 'm' is '1'"),
        ({"config": ModelConfig(max_batches_in_flight=0)}, PyTritonBadParameterError, "max_batches_in_flight"),
        (
            {"outputs": [Tensor(name="y", shape=(1,), dtype=np.float32, optional=True)]},
            PyTritonValidationError,
            "only inputs may be optional",
        ),
    ],
)
def test_a_wrong_description_says_what_is_wrong(given, error, message):
    with pytest.raises(error, match=message):
        described(**given)


@pytest.mark.parametrize("given", [X, None, 3])
def test_tensors_must_come_in_a_sequence(given):
    with pytest.raises(PyTritonValidationError, match="must be a list of Tensor"):
        describe("m", 1, given, [Y], ModelConfig(), 1)


class Bound:
    """A model in a folder, with what it told about its proxies."""

    def __init__(self, folder, *functions, config=None):
        self.store = folder / "store"
        self.store.mkdir(exist_ok=True)
        self.sockets = folder / "0"
        self.context = TritonContext()
        self.config = config or described(instances=len(functions))
        self.model = Model(workers_of(functions), ServedModel(self.config, self.context, Options(), Observation()))
        self.disconnected = threading.Semaphore(0)
        self.proxies = []

    def start(self):
        self.model.start(self.store, self.sockets, self.on_disconnect, lambda: None)

    def on_disconnect(self, model):
        assert model is self.model
        self.disconnected.release()

    def connect(self, index):
        self.proxies.append(connect(f"{self.sockets}.{index}", {}, TIMEOUT_S))
        return self.proxies[-1]

    def infer(self, proxy):
        proxy.send(Frame(REQUEST, 1, 1), [tensor(0, np.ones((1, 1), np.float32), 0)])
        return proxy.receive()


@pytest.fixture
def bound(tmp_path):
    bound = Bound(tmp_path, identity, identity)
    yield bound
    for proxy in bound.proxies:
        proxy.close()
    bound.model.close()


def test_a_model_makes_its_callables_known(bound):
    assert bound.context.model_configs[identity] is bound.config
    assert (bound.model.name, bound.model.version, bound.model.loaded) == ("m", 1, False)


def test_a_started_model_has_its_files_and_a_socket_per_instance(bound):
    bound.start()
    assert sorted(os.listdir(bound.store / "m")) == ["1", "config.pbtxt"]
    assert sorted(path.name for path in bound.sockets.parent.glob("0.*")) == ["0.0", "0.1"]
    assert bound.model.is_alive()
    assert not bound.model.is_connected()


def test_a_model_is_connected_once_all_of_its_instances_are(bound):
    bound.start()
    bound.infer(bound.connect(0))
    assert not bound.model.is_connected()
    bound.infer(bound.connect(1))
    assert bound.model.is_connected()
    assert not bound.model.wait_disconnected(time.monotonic())
    bound.proxies[0].close()
    assert bound.disconnected.acquire(timeout=TIMEOUT_S)
    assert not bound.model.is_connected()
    bound.proxies[1].close()
    assert bound.model.wait_disconnected(time.monotonic() + TIMEOUT_S)


def test_a_model_is_as_quiet_as_its_loudest_instance(bound):
    assert bound.model.quiet_s() == math.inf
    bound.start()
    assert bound.model.quiet_s() == math.inf
    before = time.monotonic()
    bound.infer(bound.connect(1))
    assert bound.model.quiet_s() <= time.monotonic() - before


def test_a_closed_model_leaves_no_file_and_no_socket(bound):
    bound.start()
    bound.connect(0)
    bound.model.close()
    bound.model.close()
    assert os.listdir(bound.store) == []
    assert [*bound.sockets.parent.glob("0.*")] == []


def test_a_model_that_was_never_started_can_be_closed(bound):
    bound.model.close()
    assert os.listdir(bound.store) == []


def test_a_start_that_fails_half_way_can_be_cleaned_up(bound):
    (bound.sockets.parent / "0.1").touch()
    with pytest.raises(OSError, match="Address already in use"):
        bound.start()
    bound.model.close()
    assert os.listdir(bound.store) == []
    assert [path.name for path in bound.sockets.parent.glob("0.*")] == ["0.1"]


def test_a_model_whose_instance_has_died_is_not_alive(bound):
    bound.start()
    bound.model._instances[1].close()
    assert not bound.model.is_alive()


def test_an_instance_that_is_removed_does_not_make_its_model_look_dead(bound):
    class Leaving:
        """Is removed by another thread while it is asked."""

        def is_alive(self):
            bound.model._instances.remove(self)
            return False

    bound.start()
    bound.model._instances.append(Leaving())
    assert bound.model.is_alive()


def test_the_queue_delay_is_that_of_the_batcher(tmp_path):
    config = described(config=ModelConfig(batcher=DynamicBatcher(max_queue_delay_microseconds=250_000)))
    assert Bound(tmp_path, identity, config=config).model.queue_delay_s() == 0.25
    config = described(config=ModelConfig(batching=False))
    assert Bound(tmp_path, identity, config=config).model.queue_delay_s() == 0.0


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        ("other", 1, None),
        ("m", 2, None),
        ("m", 1, PyTritonInvalidOperationError),
        ("M", 1, PyTritonInvalidOperationError),
        ("M", 2, PyTritonInvalidOperationError),  # one folder, on file systems that do not tell them apart
    ],
)
def test_names_and_versions_are_bound_once(bound, name, version, error):
    other = described(name, version, instances=2)
    if error is None:
        bound.model.check_beside(other)
    else:
        with pytest.raises(error, match=r"is bound already; .* or choose another name or version"):
            bound.model.check_beside(other)


@pytest.mark.parametrize(
    "given", [{"instances": 1}, {"inputs": [X, Y]}, {"config": ModelConfig(max_batch_size=9)}, {"outputs": [X]}]
)
def test_versions_share_all_but_their_callables(bound, given):
    other = described(version=2, **{"instances": 2, **given})
    with pytest.raises(PyTritonBadParameterError, match="version 2 of model 'm' must have the tensors"):
        bound.model.check_beside(other)
