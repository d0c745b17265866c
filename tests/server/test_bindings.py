"""One callable behind several models: each call sees the model that it serves."""

import numpy as np

from pytriton.decorators import batch, fill_optionals, pad_batch, triton_context
from pytriton.model_config import DynamicBatcher, Tensor
from tests.server.arrays import filled


def outputs(*names):
    return [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in names]


@batch
def both(x):
    return [x + 1, x + 2]


def test_a_list_of_outputs_gets_the_names_of_the_model_that_was_called(bind, traffic):
    first, second = bind(both, outputs=outputs("a", "b")), bind(both, outputs=outputs("b", "c"))
    for _ in range(2):
        assert {name: array[0, 0] for name, array in traffic.infer(first, filled(0)).items()} == {"a": 1, "b": 2}
        assert {name: array[0, 0] for name, array in traffic.infer(second, filled(0)).items()} == {"b": 1, "c": 2}


def test_the_context_has_the_configuration_of_the_model_that_was_called(bind, traffic):
    seen = []

    @batch
    @triton_context
    def infer(x, triton_context):
        config = triton_context.model_configs[infer]
        seen.append((config.model_name, config.max_batch_size))
        return [x]

    first, second = bind(infer, max_batch_size=3), bind(infer, max_batch_size=5)
    for model in (first, second, first):
        traffic.infer(model, filled(0))
    assert seen == [(first, 3), (second, 5), (first, 3)]


def test_decorators_follow_the_configuration_of_the_model_that_was_called(bind, traffic):
    seen = []

    @fill_optionals(shift=np.zeros(1, np.float32))
    @batch
    @pad_batch
    def infer(x, shift):
        seen.append(x.shape)
        return [x + shift]

    inputs = [*outputs("x"), Tensor(name="shift", shape=(1,), dtype=np.float32, optional=True)]
    pairs = bind(infer, inputs, max_batch_size=8, batcher=DynamicBatcher(preferred_batch_size=[2]))
    fours = bind(infer, inputs, max_batch_size=8, batcher=DynamicBatcher(preferred_batch_size=[4]))
    for model in (pairs, fours):
        assert np.array_equal(traffic.infer(model, x=filled(5, 1))["y"], filled(5, 1))
    assert seen == [(2, 4), (4, 4)]


def test_the_methods_of_two_objects_are_two_models(bind, traffic):
    class Adder:
        def __init__(self, number, names):
            self.number, self.names = number, names

        @batch
        @triton_context
        def infer(self, x, triton_context):
            assert [spec.name for spec in triton_context.model_configs[self.infer].outputs] == self.names
            return [x + self.number]

    first, second = bind(Adder(1, ["a"]).infer, outputs=outputs("a")), bind(Adder(2, ["b"]).infer, outputs=outputs("b"))
    assert traffic.infer(first, filled(0))["a"][0, 0] == 1
    assert traffic.infer(second, filled(0))["b"][0, 0] == 2
