"""Tensors of every rank, with and without a batch axis."""

import numpy as np
import pytest

from pytriton.decorators import batch, sample
from pytriton.model_config import Tensor
from tests.server.arrays import assert_same, values

RANKS = range(9)


def tensors(ranks=RANKS):
    return [Tensor(name=f"r{rank}", shape=(-1,) * rank, dtype=np.int16) for rank in ranks]


def shape_of(rank):
    """1 x 2 x 3 x 1 x 2 ..., so that no two neighbouring axes can be mistaken for each other."""
    return tuple(axis % 3 + 1 for axis in range(rank))


def test_a_batch_of_every_rank_comes_back_as_it_was_sent(bind, traffic):
    seen = {}

    @batch
    def echo(**inputs):
        seen.update({name: array.shape for name, array in inputs.items()})
        return inputs

    # What has rank 0 in the model is one column for clients: the protocol has no such tensors.
    sent = {f"r{rank}": values(np.int16, (3, *(shape_of(rank) or (1,)))) for rank in RANKS}
    answer = traffic.infer(bind(echo, tensors(), tensors()), **sent)
    assert seen == {f"r{rank}": (3, *shape_of(rank)) for rank in RANKS}
    for name, array in sent.items():
        assert_same(answer[name], array)


def test_a_sample_of_every_rank_comes_back_as_it_was_sent(bind, traffic):
    seen = {}

    @sample
    def echo(**inputs):
        seen.update({name: array.shape for name, array in inputs.items()})
        return inputs

    ranks = RANKS[1:]  # without a batch axis the protocol has no tensor of rank 0
    sent = {f"r{rank}": values(np.int16, shape_of(rank)) for rank in ranks}
    model = bind(echo, tensors(ranks), tensors(ranks), batching=False)
    answer = traffic.infer(model, sample=True, **sent)
    assert seen == {f"r{rank}": shape_of(rank) for rank in ranks}
    for name, array in sent.items():
        assert_same(answer[name], array)


def test_a_sample_for_a_batching_model_is_a_batch_of_one_row(bind, traffic):
    seen = []

    @batch
    def echo(x):
        seen.append(x.shape)
        return [x]

    sent = values(np.float32, (5,))
    assert_same(traffic.infer(bind(echo), sent, sample=True)["y"], sent)
    assert seen == [(1, 5)]


@pytest.mark.parametrize("shape", [(1, 0, 3), (2, 3, 0), (4, 0, 0)])
def test_axes_without_extent_keep_the_others(bind, traffic, shape):
    x = Tensor(name="x", shape=(-1, -1), dtype=np.float64)
    y = Tensor(name="y", shape=(-1, -1), dtype=np.float64)
    seen = []

    def echo(requests):
        seen.extend(request["x"].shape for request in requests)
        return [{"y": request["x"]} for request in requests]

    sent = np.empty(shape)
    assert_same(traffic.infer(bind(echo, [x], [y]), sent)["y"], sent)
    assert seen == [shape]


def test_an_output_may_be_empty_where_the_input_is_not(bind, traffic):
    model = bind(lambda requests: [{"y": request["x"][:, :0]} for request in requests])
    assert_same(traffic.infer(model, values(np.float32, (2, 3)))["y"], np.empty((2, 0), np.float32))


def test_a_model_without_inputs_can_be_called(bind, traffic):
    y = Tensor(name="y", shape=(2,), dtype=np.int64)
    model = bind(lambda requests: [{"y": np.array([7, 9])} for _ in requests], [], [y], batching=False)
    assert_same(traffic.infer(model, sample=True)["y"], np.array([7, 9]))
