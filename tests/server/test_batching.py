"""Requests that wait are merged into one call, and each gets its own rows back."""

import numpy as np

from tests.server.traffic import Gate, filled
from pytriton.model_config import Tensor

def test_waiting_requests_are_merged_up_to_the_largest_batch(bind, traffic):
    gate, calls = Gate(), []

    def double(requests):
        gate.wait()
        calls.append([len(request["x"]) for request in requests])
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(double, max_batch_size=8)
    inputs = [filled(number, rows) for number, rows in enumerate([1, 3, 1, 4, 2, 1, 5])]
    answers = traffic.merge(model, gate, [lambda x=x: traffic.infer(model, x)["y"] for x in inputs])
    for x, answer in zip(inputs, answers, strict=True):
        assert np.array_equal(answer.result(), x * 2)
    assert calls == [[1], [3, 1, 4], [2, 1, 5]]

def test_opt(bind, traffic):
    gate, calls = Gate(), []

    def double(requests):
        gate.wait()
        calls.append([{k:v.shape for k,v in request.items()} for request in requests])
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(double, [Tensor(name="x",shape=(-1,),dtype=np.float32),Tensor(name="z",shape=(-1,),dtype=np.float32,optional=True)],max_batch_size=8)
    def call(x, **k): return lambda: traffic.infer(model, x=x,**k)["y"]
    answers = traffic.merge(model, gate, [call(filled(1)), call(filled(1)), call(filled(1)), call(filled(1),z=filled(1)), call(filled(1),z=filled(1)), call(filled(1,1,8),z=filled(1))])
    [a.result() for a in answers]
    print(calls)
    assert 0

def test_opt2(bind, traffic):
    gate, calls = Gate(), []

    def double(requests):
        gate.wait()
        calls.append([{k:v.shape for k,v in request.items()} for request in requests])
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(double, [Tensor(name="x",shape=(4,),dtype=np.float32),Tensor(name="z",shape=(4,),dtype=np.float32,optional=True)],max_batch_size=8)
    def call(x, **k): return lambda: traffic.infer(model, x=x,**k)["y"]
    answers = traffic.merge(model, gate, [call(filled(1)), call(filled(1)), call(filled(1)), call(filled(1),z=filled(1)), call(filled(1),z=filled(1)), call(filled(1),z=filled(1))])
    [a.result() for a in answers]
    print(calls)
    assert 0
