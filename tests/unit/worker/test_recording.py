"""What a recording keeps of the batches of one worker, whatever their form."""

import asyncio
import json
import pickle
import random
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonRequestError
from pytriton.model_config import Recording
from pytriton.recording import read
from pytriton.recording.format import HEAD
from pytriton.wire.frames import REQUEST, SEQUENCE_END, SEQUENCE_START, Frame, pack, unpack
from pytriton.wire.tensors import Tensor, tensor
from pytriton.worker.inference import Inference, Options
from pytriton.worker.observation import Observation
from pytriton.worker.recording import NumberedRecording, Recorder
from tests.unit.links import BOTH, CONFIG

DECOUPLED = replace(CONFIG, decoupled=True)
X = np.arange(12, dtype=np.float32).reshape(6, 2)
S = np.array([[b"a"], [b""], [b"ccc"], [b"dd"], [b"e"], [b"f" * 300]], object)


def a_batch(rows=(1, 2, 3), texts=False, apart=False, **metadata):
    """One tensor per input for all requests, or apart, as requests of different shapes travel."""
    frame = Frame(REQUEST, 0, len(rows), None if apart else list(rows), json.dumps(metadata).encode())
    arrays, tensors = {0: X, **({1: S} if texts else {})}, []
    for name, array in arrays.items():
        if not apart:
            tensors.append(tensor(name, array[: sum(rows)]))
        for request, count in enumerate(rows if apart else ()):
            first = sum(rows[:request])
            tensors.append(tensor(name, array[first : first + count], request))
    return unpack(memoryview(bytearray(pack(frame, tensors))))


class Recorded:
    """A model that is recorded."""

    def __init__(self, path, function, config=CONFIG, options=None, **recording):
        self.path, self.config, self.observation = path, config, Observation()
        self.observation.start_recording(config, Recording(path, **recording))
        form = whole_batch_form(function)
        given = config, options or Options(), lambda: None, form
        self.inference = Inference(function, *given, observation=self.observation)

    def end(self):
        self.status = self.observation.stop_recording(self.config)
        return [*read(self.path)]


@pytest.fixture
def recorded(tmp_path):
    return lambda function, *args, **options: Recorded(tmp_path / "m.ptr", function, *args, **options)


def same(requests):
    return [{"y": request["x"] * 2} for request in requests]


@batch
def whole(x, s=None):
    y = x * 2
    x[:] = -1  # a callable may write to its inputs
    return {"y": y}


@pytest.mark.parametrize("function", [same, whole])
@pytest.mark.parametrize("apart", [False, True])
def test_each_request_of_a_batch_is_kept_with_its_own_rows(recorded, function, apart):
    model = recorded(function)
    model.inference.answer(a_batch(texts=True, apart=apart))
    found = model.end()
    assert [each.inputs["x"].tolist() for each in found] == [X[:1].tolist(), X[1:3].tolist(), X[3:].tolist()]
    assert [each.inputs["s"].tolist() for each in found] == [S[:1].tolist(), S[1:3].tolist(), S[3:].tolist()]
    answers = [each.responses[0]["y"].tolist() for each in found]
    assert answers == [(each * 2).tolist() for each in (X[:1], X[1:3], X[3:])]
    assert {(each.model, each.version, each.batch, each.error, each.is_streamed) for each in found} == {
        ("m", 1, 3, "", False)
    }
    assert all(each.duration_s >= 0 for each in found)
    assert (model.status.recorded, model.status.dropped, model.status.too_large) == (3, 0, 0)
    assert model.status.bytes == model.path.stat().st_size - 8


def test_outputs_of_texts_are_cut_by_rows(recorded):
    @batch
    def both(x, s):
        return {"y": x, "z": s}

    model = recorded(both, BOTH)
    model.inference.answer(a_batch(texts=True))
    answers = [each.responses[0]["z"].tolist() for each in model.end()]
    assert answers == [S[:1].tolist(), S[1:3].tolist(), S[3:].tolist()]


def test_ids_parameters_and_sequences_are_kept_without_secrets(recorded):
    parameters = {"k": 1, "Authorization": "Bearer t", "cookie": "c", "triton_x": 1, "priority": 2, "hidden": "h"}
    parameters["triton-grpc-protocol-triton-access-token"] = "Bearer u"
    entry = {"id": "seven", "parameters": parameters, "sequence": [3, SEQUENCE_START | SEQUENCE_END]}
    model = recorded(same, without=["hidden"])
    model.inference.answer(a_batch((1, 1), **{"1": entry}))
    first, second = model.end()
    assert (first.id, first.parameters, first.sequence) == ("", {}, None)
    assert (second.id, second.parameters, second.sequence) == ("seven", {"k": 1}, (3, True, True))
    assert b"Bearer" not in model.path.read_bytes()


def test_what_is_left_out_is_not_in_the_file(recorded):
    model = recorded(same, without=["s", "id"])
    model.inference.answer(a_batch(texts=True, **{"0": {"id": "seven"}}))
    first, *_ = model.end()
    assert ([*first.inputs], first.id, first.lacks_inputs) == (["x"], "", True)
    assert b"fff" not in model.path.read_bytes()
    assert b"seven" not in model.path.read_bytes()


@pytest.mark.parametrize("name", ["x-user", "X-USER", "X-User"])
def test_parameters_are_left_out_in_any_spelling_as_headers_have_that_of_the_client(recorded, name):
    model = recorded(same, without=[name])
    parameters = {"X-User": "seven", "x-user": "seven", "x-users": 8}
    model.inference.answer(a_batch((1,), **{"0": {"parameters": parameters}}))
    assert [each.parameters for each in model.end()] == [{"x-users": 8}]
    assert b"seven" not in model.path.read_bytes()


def test_tensors_and_the_id_are_left_out_only_in_their_own_spelling(recorded):
    model = recorded(same, without=["X", "Y", "ID"])
    model.inference.answer(a_batch((1,), **{"0": {"id": "seven"}}))
    (found,) = model.end()
    assert ([*found.inputs], [*found.responses[0]], found.id, found.lacks_inputs) == (["x"], ["y"], "seven", False)


def test_outputs_that_are_left_out_leave_the_responses(recorded):
    model = recorded(same, without=["y"])
    model.inference.answer(a_batch())
    assert [(each.lacks_inputs, [*each.responses]) for each in model.end()] == [(False, [{}])] * 3


@pytest.mark.parametrize("isolate", [True, False])
def test_a_batch_that_fails_is_kept_unless_its_requests_come_again(recorded, isolate):
    def failing(requests):
        raise ValueError("no")

    model = recorded(failing, CONFIG, Options(isolate_errors=isolate))
    model.inference.answer(a_batch())
    model.inference.answer(a_batch((1,)))
    assert [(each.error, each.batch, [*each.responses]) for each in model.end()] == [
        *([] if isolate else [("ValueError: no", 3, [])] * 3),
        ("ValueError: no", 1, []),
    ]


def test_one_request_of_a_batch_may_fail(recorded):
    model = recorded(lambda requests: [same(requests)[0], ValueError("no"), same(requests)[2]])
    model.inference.answer(a_batch())
    assert [(each.error, len(each.responses)) for each in model.end()] == [("", 1), ("ValueError: no", 0), ("", 1)]


def two(requests):
    yield same(requests)
    yield same(requests)


async def two_async(requests):
    yield same(requests)
    yield same(requests)


async def answers_of(inference, frame):
    async with aclosing(inference.stream_async(frame)) as replies:
        return [reply async for reply in replies]


@pytest.mark.parametrize("function", [two, two_async])
def test_all_responses_of_a_stream_are_kept(recorded, function):
    model = recorded(function, DECOUPLED)
    if function is two:
        replies = model.inference.stream(a_batch())
        assert [next(replies)[0].more for _ in range(3)] == [True, True, False]
        replies.close()
    else:
        assert len(asyncio.run(answers_of(model.inference, a_batch()))) == 3
    found = model.end()
    assert [len(each.responses) for each in found] == [2, 2, 2]
    assert found[1].responses[1]["y"].tolist() == (X[1:3] * 2).tolist()
    assert {(each.is_streamed, each.is_cancelled) for each in found} == {(True, False)}


def test_a_stream_that_is_closed_early_is_cancelled(recorded):
    model = recorded(two, DECOUPLED)
    replies = model.inference.stream(a_batch((1,)))
    next(replies)
    replies.close()
    (found,) = model.end()
    assert (found.is_cancelled, len(found.responses)) == (True, 1)


def test_a_coroutine_that_is_cancelled_is_so_recorded(recorded):
    async def cancelled(requests):
        raise asyncio.CancelledError

    model = recorded(cancelled)
    asyncio.run(answers_of(model.inference, a_batch((1,))))
    (found,) = model.end()
    assert found.is_cancelled


def test_a_request_that_is_too_large_is_counted(recorded):
    model = recorded(same, record_bytes=1024)
    model.inference.answer(a_batch((6,)))
    wide = Frame(REQUEST, 0, 1, [1])
    data = pack(wide, [tensor(0, np.zeros((1, 1000), np.float32))])
    model.inference.answer(unpack(memoryview(bytearray(data))))
    assert (len(model.end()), model.status.too_large, model.status.dropped) == (1, 1, 0)


@pytest.mark.parametrize("apart", [False, True])
def test_a_request_that_is_too_large_is_lost_alone(recorded, apart):
    model = recorded(same, record_bytes=1024)
    large = np.zeros((200, 2), np.float32)
    arrays = [X[:1], large, X[1:3]]
    tensors = [tensor(0, array, request) for request, array in enumerate(arrays)]
    frame = Frame(REQUEST, 0, 3, None if apart else [1, 200, 2])
    model.inference.answer(
        unpack(memoryview(bytearray(pack(frame, tensors if apart else [tensor(0, np.vstack(arrays))]))))
    )
    assert [each.inputs["x"].tolist() for each in model.end()] == [X[:1].tolist(), X[1:3].tolist()]
    assert (model.status.recorded, model.status.too_large, model.status.dropped) == (2, 1, 0)


def test_the_queue_counts_what_is_kept(recorded, monkeypatch):
    monkeypatch.setattr("pytriton.recording.writer.MOST_WAITING_BYTES", 2**16)
    model = recorded(same, without=["s"], record_bytes=2**13)
    recorder = model.observation.recorder(CONFIG)
    large = [np.array([[b"t" * 2**17]], object)] * 3  # is left out
    frame = Frame(REQUEST, 0, 3, [1, 1, 1])
    data = pack(frame, [tensor(0, X[:3]), tensor(1, np.vstack(large))])
    model.inference.answer(unpack(memoryview(bytearray(data))))
    recorder._choose = lambda _: [1]
    many = Frame(REQUEST, 0, 40, [1] * 40)
    model.inference.answer(unpack(memoryview(bytearray(pack(many, [tensor(0, np.ones((40, 500), np.float32))])))))
    assert len(model.end()) == 4
    assert (model.status.recorded, model.status.too_large, model.status.dropped) == (4, 0, 0)


def test_a_request_that_lacks_an_input_is_kept_beside_others(recorded):
    model = recorded(lambda requests: [ValueError("no")] * 3)
    tensors = [tensor(0, X[:1], 0), tensor(0, X[1:2], 1)]
    model.inference.answer(unpack(memoryview(bytearray(pack(Frame(REQUEST, 0, 3), tensors)))))
    first, second, third = model.end()
    assert [each.inputs["x"].tolist() for each in (first, second)] == [X[:1].tolist(), X[1:2].tolist()]
    assert not third.inputs


@pytest.mark.parametrize("shape", [(2**33, 0), (1, 2**60, 0), (1, 0, 2**62)])
def test_a_tensor_that_numpy_may_not_have_loses_its_own_batch_alone(recorded, shape):
    model = recorded(same)
    model.inference.answer(a_batch((1,)))
    hostile = Tensor(0, 0, tensor(0, X).code, shape, 0, ())
    model.inference.answer(unpack(memoryview(bytearray(pack(Frame(REQUEST, 0, 1), [hostile])))))
    model.inference.answer(a_batch((1,)))
    assert len(model.end()) == 2
    assert (model.status.recorded, model.status.dropped) == (2, 1)


def test_requests_are_counted_once_if_they_come_again(recorded):
    def failing(requests):
        raise ValueError("no")

    model = recorded(failing, record_bytes=1024)
    large, small = np.zeros((500, 2), np.float32), X[:1]
    whole = pack(Frame(REQUEST, 0, 2, [500, 1]), [tensor(0, np.vstack([large, small]))])
    model.inference.answer(unpack(memoryview(bytearray(whole))))
    for each in (large, small):
        data = pack(Frame(REQUEST, 0, 1, [len(each)]), [tensor(0, each)])
        model.inference.answer(unpack(memoryview(bytearray(data))))
    assert len(model.end()) == 1
    assert (model.status.recorded, model.status.too_large, model.status.dropped) == (1, 1, 0)


def test_the_message_of_an_error_counts_too(recorded):
    model = recorded(lambda requests: [ValueError("e" * 3000), *same(requests)[1:]], record_bytes=1024)
    model.inference.answer(a_batch((1, 1)))
    assert [each.error for each in model.end()] == [""]
    assert (model.status.recorded, model.status.too_large) == (1, 1)


@pytest.mark.parametrize("fails_alone", [True, False])
def test_a_request_that_fails_without_a_message_has_failed(recorded, fails_alone):
    def failing(requests):
        if not fails_alone:
            raise PyTritonRequestError("")
        return [PyTritonRequestError(""), *same(requests)[1:]]

    model = recorded(failing)
    model.inference.answer(a_batch((1, 1) if fails_alone else (1,)))
    first, *others = model.end()
    assert (bool(first.error), first.responses) == (True, [])
    assert [each.error for each in others] == [""] * fails_alone


def test_one_request_of_a_batch_may_be_cancelled(recorded):
    model = recorded(lambda requests: [same(requests)[0], asyncio.CancelledError(), same(requests)[2]])
    model.inference.answer(a_batch())
    assert [each.is_cancelled for each in model.end()] == [False, True, False]


def test_a_response_after_the_failure_of_a_request_is_that_of_the_others(recorded):
    def failing(requests):
        yield same(requests)
        yield [ValueError("no"), *same(requests)[1:]]
        yield same(requests)

    model = recorded(failing, DECOUPLED)
    replies = model.inference.stream(a_batch())
    assert len([*replies]) == 4
    assert [(each.error, len(each.responses)) for each in model.end()] == [("ValueError: no", 1), ("", 3), ("", 3)]


def test_a_share_is_chosen_whatever_the_model_does_with_the_random_module(recorded):
    def seeding(requests):
        random.seed(1)
        return same(requests)

    model = recorded(seeding, share=0.1)
    random.seed(7)
    expected = random.random()
    random.seed(7)
    model.observation.observers("m", 1, a_batch())
    assert random.random() == expected
    for _ in range(3000):
        model.inference.answer(a_batch((1,)))
    assert 200 < len(model.end()) < 400  # 300, with a standard deviation of 16


def test_a_stream_without_an_end_keeps_no_more_than_a_record_may_have(recorded):
    def endless(requests):
        while True:
            yield [{"y": request["x"][:, :0]} for request in requests]

    model = recorded(endless, DECOUPLED, record_bytes=2**14)
    replies = model.inference.stream(a_batch((1,)))
    while not (status := model.observation.recorder(DECOUPLED).status()).too_large:
        next(replies)
    replies.close()
    assert model.end() == []
    assert status.dropped == 0


def test_a_share_of_the_requests_is_chosen_wherever_they_are_in_a_batch(recorded):
    model = recorded(same, share=0.1)
    for _ in range(1000):
        model.inference.answer(a_batch((1, 1, 1, 1)))
    found = model.end()
    assert 250 < len(found) < 550  # 400, with a standard deviation of 19
    places = [X[:4].tolist().index(each.inputs["x"][0].tolist()) for each in found]
    assert min(places.count(place) for place in range(4)) > 50


@pytest.mark.parametrize("name", [int, str])
def test_a_share_of_the_sequences_is_chosen_and_each_of_them_is_kept_whole(recorded, name):
    model = recorded(same, share=0.25)
    for flags in (SEQUENCE_START, 0, SEQUENCE_END):
        for key in range(1, 1001, 2):
            entries = {str(index): {"sequence": [name(key + index), flags]} for index in range(2)}
            model.inference.answer(a_batch((1, 1), **entries))
    found = {}
    for request in model.end():
        key, *ends = request.sequence
        found.setdefault(key, []).append(ends)
    assert 150 < len(found) < 350  # 250, with a standard deviation of 14
    assert all(ends == [[True, False], [False, False], [False, True]] for ends in found.values())


def test_all_workers_choose_the_same_sequences_and_each_recording_others():
    def chosen_by(numbered):
        recorder = Recorder(CONFIG, numbered, lambda *_: None)
        frames = [a_batch((1,), **{"0": {"sequence": [key, 0]}}) for key in range(1, 1001)]
        chosen = [key for key, frame in enumerate(frames, 1) if recorder.sample(frame) is not None]
        recorder.close()
        return chosen

    first, second = (NumberedRecording(number, Recording("m.ptr", share=0.5)) for number in (1, 2))
    assert chosen_by(first) == chosen_by(pickle.loads(pickle.dumps(first))) != chosen_by(second)


def test_requests_without_a_sequence_are_chosen_alone_beside_those_of_a_sequence(recorded):
    model = recorded(same, share=0.5)
    for _ in range(200):
        model.inference.answer(a_batch((1, 1), **{"0": {"sequence": [7, 0]}}))
    found = model.end()
    assert len([each for each in found if each.sequence]) in (0, 200)
    assert 50 < len([each for each in found if each.sequence is None]) < 150  # 100, with a standard deviation of 7


def test_a_request_that_makes_no_sense_fails_as_without_a_recording(recorded):
    model = recorded(same)
    frame = a_batch((1,))
    frame.rows = [1, 1]  # of one request
    frame.requests = 2
    with_recording = model.inference.answer(frame)
    assert with_recording is not None
    model.end()


def test_a_model_has_one_recording_and_a_file_too(tmp_path):
    observation, other = Observation(), replace(CONFIG, model_version=2)
    observation.start_recording(CONFIG, Recording(tmp_path / "m.ptr"))
    with pytest.raises(PyTritonInvalidOperationError, match="recorded already"):
        observation.start_recording(CONFIG, Recording(tmp_path / "n.ptr"))
    with pytest.raises(PyTritonInvalidOperationError, match="another recording"):
        observation.start_recording(other, Recording(tmp_path / "m.ptr"))
    with_number = replace(CONFIG, model_version=3)
    observation.start_recording(with_number, Recording(tmp_path / "o.ptr.1"))
    with pytest.raises(PyTritonInvalidOperationError, match="another recording"):
        observation.start_recording(other, Recording(tmp_path / "o.ptr"))
    observation.stop_recording(with_number)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("folder/../m.ptr", "link/m.ptr", "m.ptr.1", "m.ptr.77"):
        with pytest.raises(PyTritonInvalidOperationError, match="another recording"):
            observation.start_recording(other, Recording(tmp_path / name))
    for path in (tmp_path / "none" / "m.ptr", tmp_path / "folder"):
        with pytest.raises(PyTritonInvalidOperationError, match="cannot be recorded"):
            observation.start_recording(other, Recording(path))
    assert observation.stop_recording(CONFIG).recorded == 0
    assert observation.stop_recording(CONFIG) is None
    assert observation.is_idle()


def test_late_records_of_an_earlier_recording_are_dropped_and_counted(tmp_path):
    observation, path = Observation(), tmp_path / "m.ptr"
    observation.start_recording(CONFIG, Recording(path))
    earlier = observation.recording(CONFIG).number
    observation.stop_recording(CONFIG)
    observation.start_recording(CONFIG, Recording(path, without=["secret"]))
    recorder = observation.recorder(CONFIG)
    head = HEAD.pack(0, 0.0, 1, 0)
    recorder.take(earlier, [head + b"with a secret", head + b"with another"], 0, 0)
    recorder.take(observation.recording(CONFIG).number, [head + b"without it"], 3, 4)
    status = observation.stop_recording(CONFIG)
    assert (status.recorded, status.dropped, status.too_large) == (1, 5, 4)
    assert path.read_bytes().endswith(b"without it")
    assert b"secret" not in path.read_bytes()


def test_what_is_recorded_is_the_same_object_until_it_changes(tmp_path):
    observation, found = Observation(), []
    for _ in range(2):
        observation.start_recording(CONFIG, Recording(tmp_path / "m.ptr"))
        assert observation.recording(CONFIG) is observation.recording(CONFIG)
        found.append(observation.recording(CONFIG))
        observation.stop_recording(CONFIG)
    assert observation.recording(CONFIG) is None
    assert found[0].number != found[1].number


def test_a_disk_that_is_full_loses_records_and_no_requests(recorded, monkeypatch):
    model = recorded(same)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytriton.recording.writer.os.write", full)
    reply, _ = model.inference.answer(a_batch())
    assert not reply.metadata
    assert model.end() == []
    assert (model.status.recorded, model.status.dropped) == (0, 3)
