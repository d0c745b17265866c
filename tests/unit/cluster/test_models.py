"""A model whose worker is elsewhere, with a worker that does as it likes."""

import json

import pytest

from pytriton.cluster.options import WorkerListener
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.recording import read
from pytriton.wire.connect import connect
from pytriton.wire.frames import CANCEL, END, REQUEST, Frame, pack
from pytriton.worker.context import Binding, TritonContext
from pytriton.worker.instance import Instance
from pytriton.worker.observation import Observation
from tests.server.processes import DEADLINE_S, wait_for

pytest.importorskip("zmq")
import zmq

from pytriton.cluster.messages import LAST_NUMBER, PROTOCOL, decode, is_frame
from pytriton.cluster.models import RemoteModel
from pytriton.cluster.pool import ForwardingExecutor
from pytriton.wire.control import HELLO, READY, TAKEN

CONFIG = TritonModelConfig("m")


@pytest.fixture
def model(tmp_path):
    model = RemoteModel(CONFIG, WorkerListener(f"ipc://{tmp_path}/workers"), {}, Observation(), lambda: None)
    model.enter()
    yield model
    model.leave()


@pytest.fixture
def worker(model):
    with zmq.Context() as context, context.socket(zmq.DEALER) as worker:
        worker.setsockopt(zmq.LINGER, 0)
        worker.setsockopt(zmq.RCVTIMEO, int(DEADLINE_S * 1e3))
        worker.connect(model.options.listen)
        told = {"protocol": PROTOCOL, "package": "0", "model": "m", "version": None, "host": "h", "process": 1}
        worker.send_multipart([HELLO, json.dumps(told).encode()])
        worker.send_multipart([READY, json.dumps({"credits": 2, "is_concurrent": True, "callees": []}).encode()])
        wait_for(model.joined, "the worker to join")
        yield worker


@pytest.fixture
def proxy(model, tmp_path):
    executor = ForwardingExecutor(model)
    instance = Instance(str(tmp_path / "7.0"), Binding(executor.serve, CONFIG, TritonContext()), executor, lambda: None)
    channel = connect(str(tmp_path / "7.0"), {}, DEADLINE_S)
    yield channel
    channel.close()
    instance.close()
    instance.wait_ended()


def take(worker):
    """The number of the next batch."""
    while not is_frame((parts := worker.recv_multipart())[0]):
        pass
    return decode(parts).number


def test_numbers_of_batches_begin_again_after_the_last_one(model, worker, proxy):
    model._number = LAST_NUMBER - 1
    numbers = []
    for number in range(3):
        proxy.send(Frame(REQUEST, number, 1))
        numbers.append(take(worker))
        worker.send_multipart([TAKEN, numbers[-1].to_bytes(4, "little")])
        worker.send_multipart([pack(Frame(END, numbers[-1], 1))])
        while (reply := proxy.receive()).kind != END:
            pass
        assert reply.number == number
    assert numbers == [LAST_NUMBER, 1, 2]


def test_a_batch_that_is_cancelled_before_a_worker_gets_it_is_recorded_as_cancelled(model, proxy, tmp_path):
    model.observation.start_recording(CONFIG, Recording(tmp_path / "m.ptr"))
    proxy.send(Frame(REQUEST, 1, 1))
    proxy.send(Frame(CANCEL, 1, 1, metadata=b'{"requests": [0], "all": true}'))
    while proxy.receive().kind != END:
        pass
    assert model.observation.stop_recording(CONFIG).recorded == 1
    assert [each.is_cancelled for each in read(tmp_path / "m.ptr")] == [True]
