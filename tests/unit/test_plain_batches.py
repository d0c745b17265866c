"""Batches that are answered from bytes to bytes: as they would be frame by frame, or not at all."""

import json
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import prometheus_client
import pytest

from pytriton.decorators import batch
from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonRequestError
from pytriton.model_config.triton_model_config import TensorSpec
from pytriton.proxy.frames import ERROR, HEADER, INLINE_LIMIT_BYTES, REQUEST, RESPONSE, TENSOR, Frame, pack, unpack
from pytriton.proxy.tensors import tensor
from pytriton.worker.context import Binding, TritonContext, current_binding
from pytriton.worker.inference import Options
from pytriton.worker.metrics import CallableMetrics
from pytriton.worker.observation import Observation, ObservedInference
from pytriton.worker.plain import PlainBatches
from tests.unit.links import CONFIG

DTYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"]
TWO = replace(
    CONFIG,
    inputs=[TensorSpec(name=name, dtype=np.float32, shape=(-1,)) for name in "ab"],
    outputs=[TensorSpec(name=name, dtype=np.float32, shape=(-1,)) for name in "yz"],
)


class Answering:
    """Plain batches of a callable."""

    def __init__(self, function, config=TWO, **options):
        self.observation = Observation()
        self.inference = ObservedInference(
            self.observation,
            function,
            config,
            Options(**options),
            lambda: None,
            whole_batch_form(function),
            Binding(function, config, TritonContext()),
        )
        self.plain = PlainBatches(self.inference)

    def close(self):
        self.inference.close()

    def learn(self, message):
        self.plain.learn(unpack(memoryview(message)))

    def same_as_by_frames(self, message):
        """The reply, which is that to the frame, too."""
        reply = self.plain.answer(message)
        if not isinstance(reply, bytes):
            reply = pack(*reply[1])
        assert reply == pack(*self.inference.answer(unpack(memoryview(message))))
        return unpack(memoryview(reply))


def message_of(*arrays, rows=(1, 1), number=7, metadata=b"", apart=False):
    frame = Frame(REQUEST, number, len(rows), rows, metadata, apart=apart)
    return bytearray(pack(frame, [tensor(index, array) for index, array in enumerate(arrays)]))


def rows_of(count, length=3, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (count, length)).astype(dtype)


@batch
def double(**inputs):
    return {name: 2 * inputs[of] for name, of in zip("yz", inputs, strict=False)}


@pytest.fixture(autouse=True)
def thread():
    """Serves no model any more afterwards."""
    before = current_binding.set(None)
    yield
    current_binding.reset(before)


@pytest.fixture
def answering():
    with closing(Answering(double)) as answering:
        yield answering


def test_batches_like_one_that_came_are_answered_as_bytes(answering):
    answering.learn(message_of(rows_of(2), rows_of(2, 5)))
    for number in range(5):
        message = message_of(rows_of(2, seed=number), rows_of(2, 5, seed=number), number=1000 + number)
        reply = answering.same_as_by_frames(message)
        assert (reply.kind, reply.sequence, reply.requests, reply.rows) == (RESPONSE, 1000 + number, 2, (1, 1))
    assert isinstance(answering.plain.answer(message), bytes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 16, 63])
def test_replies_are_those_that_frames_would_get(dtype, length):
    spec = [TensorSpec(name="x", dtype=np.dtype(dtype).type, shape=(-1,))]
    outputs = [replace(spec[0], name="y")]
    config = replace(CONFIG, inputs=spec, outputs=outputs)
    with closing(Answering(batch(lambda x: {"y": x[:, ::-1].copy()}), config)) as answering:
        for rows in [(1,), (3,), (1, 2), (2, 1, 1)]:
            message = message_of(rows_of(sum(rows), length, dtype), rows=rows)
            answering.learn(message)
            for _ in range(2):
                answering.same_as_by_frames(message)
            assert isinstance(answering.plain.answer(message), bytes)


def test_a_batch_of_another_description_is_left_alone(answering):
    answering.learn(message_of(rows_of(2, 4), rows_of(2, 4)))
    assert answering.plain.answer(message_of(rows_of(2, 8), rows_of(2, 2))) is None  # which is as long
    assert answering.plain.answer(message_of(rows_of(2, 4), rows_of(2, 4), rows=(2,))) is None
    assert answering.plain.answer(message_of(rows_of(2, 4), rows_of(2, 4), apart=True)) is None


@pytest.mark.parametrize("length", [0, 5, HEADER.size, -1])
def test_a_message_that_was_cut_is_left_alone(length, answering):
    message = message_of(rows_of(2, 4), rows_of(2, 4))
    answering.learn(message)
    assert answering.plain.answer(message[:length]) is None


def by_request():
    return bytearray(pack(Frame(REQUEST, 7, 1), [tensor(0, rows_of(1), 0), tensor(1, rows_of(1), 0)]))


def wrong_size():
    message = message_of(rows_of(2), rows_of(2))
    size_at = HEADER.size + TENSOR.size - 8
    message[size_at : size_at + 8] = (20).to_bytes(8, "little")
    return message


@pytest.mark.parametrize(
    "message",
    [
        by_request(),
        message_of(rows_of(2), rows_of(2), apart=True),
        message_of(np.array([["a"], ["b"]]), rows_of(2)),
        message_of(rows_of(2, 0), rows_of(2)),
        message_of(rows_of(1200), rows_of(1200), rows=[1] * 1200),
        message_of(rows_of(2), rows_of(2), rows_of(2)),
        wrong_size(),
        bytearray(pack(Frame(REQUEST, 7, 2, (1, 1), region=64), [tensor(0, rows_of(2))])),
        bytearray(pack(Frame(REQUEST, 7, 2, (1, 1), released=[64]), [tensor(0, rows_of(2))])),
    ],
    ids=["by request", "apart", "texts", "empty", "requests", "inputs", "a size", "region", "releases"],
)
def test_other_batches_are_not_learned(message, answering):
    answering.learn(message)
    assert answering.plain.answer(message) is None


def test_callables_that_take_requests_get_none(answering):
    with closing(Answering(lambda requests: [])) as answering:
        answering.learn(message_of(rows_of(2), rows_of(2)))
        assert answering.plain.answer(message_of(rows_of(2), rows_of(2))) is None


def test_observed_batches_are_answered_frame_by_frame(answering):
    message = message_of(rows_of(2), rows_of(2))
    answering.learn(message)
    answering.observation.metrics = CallableMetrics(prometheus_client.CollectorRegistry())
    assert answering.plain.answer(message) is None


def test_what_is_told_of_requests_matters_to_failures_alone(answering):
    def answered(number, **told):
        metadata = json.dumps({"1": told}).encode() if told else b""
        message = message_of(rows_of(2, 4, seed=number), rows_of(2, 4), number=number, metadata=metadata)
        answering.same_as_by_frames(message)
        return isinstance(answering.plain.answer(message), bytes)

    answering.learn(message_of(rows_of(2, 4), rows_of(2, 4), metadata=b'{"0": {"id": "a"}}'))
    assert answered(0, id="b")
    assert all(answered(number, id=str(number), parameters={"a": number}) for number in range(30))
    for metadata in (b"", b'{"0": {"id": "' + b"long" * 20 + b'"}}'):  # with which the data begin elsewhere
        assert answering.plain.answer(message_of(rows_of(2, 4), rows_of(2, 4), metadata=metadata)) is None
    function = batch(lambda **_: [][0])
    answering.inference.rebind(Binding(function, TWO, TritonContext()), whole_batch_form(function))
    for told, isolate in (({"id": "c"}, True), ({"sequence": [1, 1]}, False)):
        metadata = json.dumps({"1": told}).encode()
        reply = answering.same_as_by_frames(message_of(rows_of(2, 4), rows_of(2, 4), metadata=metadata))
        assert json.loads(reply.metadata)["isolate"] is isolate


def returning(outputs):
    return batch(lambda a, b: outputs(a))


def test_lists_of_outputs_are_plain_too():
    message = message_of(rows_of(2), rows_of(2))
    with closing(Answering(returning(lambda a: [a, a]))) as answering:
        answering.learn(message)
        answering.same_as_by_frames(message)
        assert isinstance(answering.plain.answer(message), bytes)


@pytest.mark.parametrize(
    "outputs",
    [
        lambda a: {"y": a.astype(np.float64), "z": a},
        lambda a: {"y": np.asfortranarray(rows_of(2, 7)), "z": a},
        lambda a: {"y": a, "z": a, "more": a},
        lambda a: {"y": a, "z": a[:, :0]},
        lambda a: {"y": a, "z": np.zeros((2, INLINE_LIMIT_BYTES), np.float32)},
        lambda a: {"y": a.astype(">f4"), "z": a},
        lambda a: {"y": a.view(type("Array", (np.ndarray,), {})), "z": a},
    ],
    ids=["another dtype", "Fortran order", "an undeclared one", "empty", "large", "big-endian", "a subclass"],
)
def test_outputs_that_are_not_plain_are_sent_as_frames_are(outputs):
    message = message_of(rows_of(2), rows_of(2))
    with closing(Answering(returning(outputs))) as answering:
        answering.learn(message)
        for _ in range(3):
            frame, (reply, tensors) = answering.plain.answer(message)
            assert (frame.sequence, reply.kind) == (7, RESPONSE)
            expected, arrays = answering.inference.answer(unpack(memoryview(message)))
            assert (reply, [item[:5] for item in tensors]) == (expected, [item[:5] for item in arrays])


@pytest.mark.parametrize(
    "outputs",
    [lambda a: {"y": a[:1], "z": a}, lambda a: {"y": a.tolist(), "z": a}, lambda a: None],
    ids=["too few rows", "a list for an array", "nothing"],
)
def test_wrong_outputs_fail_the_batch_each_time(outputs):
    message = message_of(rows_of(2), rows_of(2))
    with closing(Answering(returning(outputs))) as answering:
        answering.learn(message)
        for _ in range(3):
            assert answering.same_as_by_frames(message).kind == ERROR


def test_strict_models_have_all_outputs_checked():
    message = message_of(rows_of(2), rows_of(2))
    with closing(Answering(returning(lambda a: {"y": a, "z": a, "more": a}), strict=True)) as answering:
        answering.learn(message)
        assert answering.same_as_by_frames(message).kind == ERROR


@pytest.mark.parametrize("error", [ValueError("no"), PyTritonRequestError("no"), KeyboardInterrupt()], ids=repr)
def test_what_a_callable_raises_becomes_the_reply(error):
    def fail(a):
        raise error

    message = message_of(rows_of(2), rows_of(2))
    with closing(Answering(returning(fail))) as answering:
        answering.learn(message)
        reply = answering.same_as_by_frames(message)
        assert reply.kind == ERROR
        assert json.loads(reply.metadata)["isolate"] is True


def test_another_callable_may_be_bound_meanwhile(answering):
    message = message_of(rows_of(2), rows_of(2))
    answering.learn(message)
    answering.same_as_by_frames(message)
    for factor in (3, 4):
        function = batch(lambda a, b: {"y": factor * a, "z": b})  # noqa: B023
        answering.inference.rebind(Binding(function, TWO, TritonContext()), whole_batch_form(function))
        reply = answering.same_as_by_frames(message)
        assert reply.array(reply.tensors[0]).tolist() == (factor * rows_of(2)).tolist()
    answering.inference.rebind(Binding(len, TWO, TritonContext()), None)
    assert answering.plain.answer(message) is None


def test_any_number_of_descriptions_may_come_and_old_ones_are_forgotten(answering):
    for length in range(1, 600):
        answering.learn(message_of(rows_of(2, length), rows_of(2)))
    first, last = (message_of(rows_of(2, length), rows_of(2)) for length in (1, 599))
    assert answering.plain.answer(first) is None
    assert answering.same_as_by_frames(last).kind == RESPONSE


def test_inputs_lie_in_the_message_and_die_with_the_answer():
    kept = []

    def keep(a, b):
        kept.append(a)
        return {"y": a, "z": b}

    message = message_of(rows_of(2), rows_of(2))
    with closing(Answering(batch(keep))) as answering:
        answering.learn(message)
        for _ in range(2):
            answering.plain.answer(message)
            assert kept[0].flags.writeable
            kept[0][:] = 5  # which the message has then
            kept.clear()
            assert unpack(memoryview(message)).array(unpack(memoryview(message)).tensors[0]).tolist() == [[5] * 3] * 2
            assert sys.getrefcount(message) == 2


def test_nothing_is_learned_for_who_sees_every_request(answering):
    message = message_of(rows_of(2), rows_of(2))
    answering.observation.metrics = CallableMetrics(prometheus_client.CollectorRegistry())
    answering.learn(message)
    answering.observation.metrics = None
    assert answering.plain.answer(message) is None
    answering.learn(message)
    answering.same_as_by_frames(message)
