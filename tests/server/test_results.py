"""All the forms in which a callable may return its outputs."""

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.proxy.types import Response
from tests.server.arrays import assert_same, filled

LAYOUTS = {
    "the input itself": lambda x: x,
    "a part of the input": lambda x: x[:, 1:],
    "reversed": lambda x: x[:, ::-1],
    "rows reversed": lambda x: x[::-1],
    "every other column": lambda x: x[:, ::2],
    "Fortran order": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "big-endian": lambda x: x.astype(">f4"),
    "one row repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "one value repeated": lambda x: np.broadcast_to(np.float32(7), x.shape),
    "a matrix": lambda x: x.view(np.matrix),
    "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(x.shape),
}
DTYPES = ["float64", ">f8", "float16", "int64", ">i2", "uint8", "bool"]


class Answer:
    """A callable whose answer to an input the test chooses."""

    def of(self, x):
        return x

    def requests(self, requests):
        return [{"y": self.of(request["x"])} for request in requests]

    @batch
    def batch(self, x):
        return {"y": self.of(x)}


@pytest.fixture(scope="module", params=["requests", "batch"])
def answer(bind, request):
    answer = Answer()
    answer.model = bind(getattr(answer, request.param))
    return answer


@pytest.mark.parametrize("columns", [6, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_output_may_lie_in_memory_in_any_way(answer, traffic, layout, columns):
    answer.of = LAYOUTS[layout]
    sent = np.arange(3 * columns, dtype=np.float32).reshape(3, columns)
    expected = np.array(LAYOUTS[layout](sent), np.float32)
    assert_same(traffic.infer(answer.model, sent)["y"], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_output_of_another_dtype_is_cast_to_the_declared_one(answer, traffic, dtype):
    answer.of = lambda x: x.astype(dtype)
    sent = np.array([[0, 1, 2.5, 100]], np.float32)
    assert_same(traffic.infer(answer.model, sent)["y"], sent.astype(dtype).astype(np.float32))


def test_a_read_only_output_is_sent(answer, traffic):
    constant = np.ones((1, 4), np.float32)
    constant.flags.writeable = False
    answer.of = lambda x: constant
    assert_same(traffic.infer(answer.model, filled(3))["y"], constant)


def test_the_input_may_be_modified_in_place_and_returned(answer, traffic):
    def doubled(x):
        x *= 2
        return x

    answer.of = doubled
    for columns in (4, 20_000):
        assert_same(traffic.infer(answer.model, filled(3, 2, columns))["y"], filled(6, 2, columns))


@pytest.mark.parametrize("wrapped", [dict, Response, lambda data: data], ids=["dict", "Response", "Request"])
def test_a_response_may_be_any_mapping(bind, traffic, wrapped):
    y = Tensor(name="x", shape=(-1,), dtype=np.float32)
    model = bind(lambda requests: [wrapped(request) for request in requests], outputs=[y])
    assert_same(traffic.infer(model, filled(5))["x"], filled(5))


def test_outputs_that_are_not_wanted_may_be_absent_and_undeclared_ones_are_not_sent(bind, traffic):
    outputs = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("y", "absent")]
    model = bind(lambda requests: [{"y": r["x"], "undeclared": r["x"]} for r in requests], outputs=outputs)
    assert list(traffic.infer_bare(model, {"x": filled(1)}, ["y"])) == ["y"]


def test_one_array_may_be_several_outputs_of_several_requests(bind, traffic):
    outputs = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("y", "z")]
    shared = filled(9, 1, 20_000)
    model = bind(lambda requests: [{"y": shared, "z": shared} for _ in requests], outputs=outputs)
    for _ in range(3):
        answer = traffic.infer(model, filled(1))
        assert_same(answer["y"], shared)
        assert_same(answer["z"], shared)


def test_the_order_of_a_list_of_outputs_is_that_of_the_model(bind, traffic):
    outputs = [Tensor(name="b", shape=(-1,), dtype=np.float32), Tensor(name="a", shape=(-1,), dtype=np.int32)]
    model = bind(batch(lambda x: (x, x * 2)), outputs=outputs)
    answer = traffic.infer(model, filled(3))
    assert_same(answer["b"], filled(3))
    assert_same(answer["a"], filled(6).astype(np.int32))


def test_more_outputs_than_fit_into_a_frame_all_arrive(bind, traffic):
    """1500 tensor descriptions alone are longer than a message of the socket may be."""
    outputs = [Tensor(name=f"y{n}", shape=(1, 1), dtype=np.float32) for n in range(1500)]
    model = bind(batch(lambda x: [x.reshape(-1, 1, 1) + n for n in range(1500)]), outputs=outputs)
    answer = traffic.infer(model, filled(1, 1, 1))
    assert [answer[f"y{n}"].item() for n in range(1500)] == list(range(1, 1501))
