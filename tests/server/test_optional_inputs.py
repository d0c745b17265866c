"""Inputs that clients may leave out."""

from functools import partial

import numpy as np

from pytriton.decorators import batch, fill_optionals, group_by_keys
from pytriton.model_config import Tensor
from tests.server.arrays import filled
from tests.server.traffic import Gate

X = Tensor(name="x", shape=(4,), dtype=np.float32)
SHIFT = Tensor(name="shift", shape=(4,), dtype=np.float32, optional=True)
WORD = Tensor(name="word", shape=(1,), dtype=bytes, optional=True)
TEXT = Tensor(name="text", shape=(1,), dtype=bytes)


def mixed(traffic, model, gate):
    """Answers to waiting requests of which some have no shift."""
    inputs = [{"x": filled(0)}, {"x": filled(1)}, {"x": filled(2), "shift": filled(20)}, {"x": filled(3)}]
    inputs += [{"x": filled(4), "shift": filled(40)}, {"x": filled(5)}]
    answers = traffic.merge(model, gate, [partial(traffic.infer, model, **named) for named in inputs])
    return [answer.result()["y"][0, 0] for answer in answers]


def test_an_absent_input_is_a_missing_key_in_each_of_the_waiting_requests(bind, traffic):
    gate, seen = Gate(), []

    def add(requests):
        gate.wait()
        seen.extend((float(request["x"][0, 0]), list(request)) for request in requests)
        return [{"y": request["x"] + request.get("shift", 0)} for request in requests]

    model = bind(add, [X, SHIFT], max_batch_size=8)
    assert mixed(traffic, model, gate) == [0, 1, 22, 3, 44, 5]
    assert sorted(seen) == [(n, ["x", "shift"] if n in (2, 4) else ["x"]) for n in range(6)]


def test_group_by_keys_makes_batch_take_requests_with_different_inputs(bind, traffic):
    gate, seen = Gate(), []

    @group_by_keys
    @batch
    def add(x, shift=None):
        gate.wait()
        seen.append((len(x), shift is None))
        return [x if shift is None else x + shift]

    model = bind(add, [X, SHIFT], max_batch_size=8)
    assert mixed(traffic, model, gate) == [0, 1, 22, 3, 44, 5]
    assert sum(rows for rows, is_absent in seen if is_absent) == 4
    assert sum(rows for rows, is_absent in seen if not is_absent) == 2


def test_batch_may_give_an_absent_input_a_default(bind, traffic):
    gate = Gate()

    @batch
    def add(x, shift=None):
        gate.wait()
        return [x if shift is None else x + shift]

    assert mixed(traffic, bind(add, [X, SHIFT], max_batch_size=8), gate) == [0, 1, 22, 3, 44, 5]


def test_fill_optionals_fills_what_is_absent_for_each_row(bind, traffic):
    gate, shapes = Gate(), []

    @fill_optionals(shift=np.full(4, 100, np.float32))
    @batch
    def add(x, shift):
        gate.wait()
        shapes.append(x.shape == shift.shape)
        return [x + shift]

    model = bind(add, [X, SHIFT], max_batch_size=8)
    assert mixed(traffic, model, gate) == [100, 101, 22, 103, 44, 105]
    assert all(shapes)


def test_fill_optionals_fills_bytes(bind, traffic):
    @fill_optionals(word=np.array([b"default"]))
    @batch
    def say(x, word):
        return [word]

    model = bind(say, [X, WORD], [TEXT])
    assert traffic.infer(model, x=filled(0, 2))["text"].tolist() == [[b"default"], [b"default"]]
    given = np.array([[b"given"]], dtype=object)
    assert traffic.infer(model, x=filled(0), word=given)["text"].tolist() == [[b"given"]]


def test_a_model_whose_inputs_are_all_optional_is_called_with_any_of_them(bind, traffic):
    seen = []

    def names(requests):
        seen.append([list(request) for request in requests])
        return [{"text": np.array([["-".join(request).encode()]], dtype=object)} for request in requests]

    model = bind(names, [SHIFT, WORD], [TEXT])
    word = np.array([[b"w"]], dtype=object)
    assert traffic.infer(model, word=word)["text"] == b"word"
    assert traffic.infer(model, shift=filled(1))["text"] == b"shift"
    assert traffic.infer(model, word=word, shift=filled(1))["text"] == b"shift-word"
    assert seen == [[["word"]], [["shift"]], [["shift", "word"]]]


def test_without_a_batch_axis_an_absent_input_is_a_missing_key_too(bind, traffic):
    model = bind(lambda requests: [{"y": requests[0]["x"] + requests[0].get("shift", -1)}], [X, SHIFT], batching=False)
    assert traffic.infer(model, sample=True, x=filled(1)[0])["y"].tolist() == [0] * 4
    assert traffic.infer(model, sample=True, x=filled(1)[0], shift=filled(2)[0])["y"].tolist() == [3] * 4
