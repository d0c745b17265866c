"""Wrong results give a clear error, and the model keeps serving."""

import numpy as np
import pytest

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.model_config import Tensor
from tests.server.arrays import assert_same, filled

pytestmark = pytest.mark.either_proxy

X = filled(1, 2)
OUTPUTS = [
    Tensor(name="y", shape=(4,), dtype=np.float32),
    Tensor(name="n", shape=(-1, 2), dtype=np.int32),
    Tensor(name="text", shape=(-1,), dtype=bytes),
]


def objects(*items):
    array = np.empty((2, len(items)), dtype=object)
    array[:] = items
    return array


RIGHT = {"y": X, "n": np.ones((2, 5, 2), np.int32), "text": objects(b"a", b"b", b"c")}


def with_one(**outputs):
    """The right outputs of one request but for these."""
    return [RIGHT | outputs]


NEVER = {
    "nothing": (None, "returned a NoneType; return a list"),
    "a dict": ({"y": X}, "returned a dict; return a list"),
    "a tuple": (({"y": X},), "returned a tuple; return a list"),
    "an array": (X, "returned a ndarray; return a list"),
    "too few responses": ([], "0 responses to 1 requests"),
    "too many responses": ([RIGHT, RIGHT], "2 responses to 1 requests"),
    "no mapping": ([None], "response 0 is a NoneType"),
    "an array for a mapping": ([X], "response 0 is a ndarray"),
    "a key that is no text": ([{1: X}], "key 1, a int"),
    "a list for an array": (with_one(y=X.tolist()), "'y' of response 0 is a list"),
    "a scalar for an array": (with_one(y=X[0, 0]), "'y' of response 0 is a float32"),
    "complex numbers": (with_one(y=X.astype(complex)), "dtype complex128"),
    "dates": (with_one(y=X.astype("datetime64[s]")), "dtype datetime64"),
    "structures": (with_one(y=np.zeros(2, "f4,f4")), "dtype"),
    "objects that are numbers": (with_one(text=objects(1, 2)), "object array of int"),
    "objects of which a later one is a number": (with_one(text=objects(b"a", 2)), "holds int"),
    "too few rows": (with_one(y=X[:1]), "has 1 rows, expected 2"),
    "too many rows": (with_one(y=filled(1, 3)), "has 3 rows, expected 2"),
    "no batch axis": (with_one(y=np.array(1, np.float32)), "0-d array"),
    "words for numbers": (with_one(y=np.array([[b"one"], [b"two"]])), "ValueError"),
}
STRICTLY_NEVER = {
    "an undeclared output": (with_one(other=X), "'other' of response 0 is not declared"),
    "a wider dtype": (with_one(y=X.astype(np.float64)), "dtype float64, expected float32"),
    "a narrower dtype": (with_one(n=np.ones((2, 1, 2), np.int16)), "dtype int16, expected int32"),
    "another kind of dtype": (with_one(y=X.astype(np.int32)), "dtype int32, expected float32"),
    "text for numbers": (with_one(y=np.full((2, 4), b"1")), "expected float32"),
    "numbers for text": (with_one(text=X), "dtype float32, expected bytes"),
    "a lower rank": (with_one(y=np.ones(2, np.float32)), r"shape \(2,\), expected \(-1, 4\)"),
    "a higher rank": (with_one(y=X.reshape(2, 4, 1)), r"shape \(2, 4, 1\), expected"),
    "another size": (with_one(y=X[:, :3]), r"shape \(2, 3\), expected \(-1, 4\)"),
    "another size of one axis": (with_one(n=np.ones((2, 7, 3), np.int32)), r"expected \(-1, -1, 2\)"),
}
ALWAYS = {
    "all outputs": RIGHT,
    "an empty array": {"n": np.ones((2, 0, 2), np.int32)},
    "text as str": {"text": np.array([["a"], ["b"]])},
    "text as S": {"text": np.array([[b"a"], [b"b"]])},
    "text as objects": {"text": objects("ä", "b")},
    "text beside bytes": {"text": objects(b"a", "b")},
    "an empty object array": {"text": np.empty((2, 0), dtype=object)},
}


def encoded(texts):
    """Texts as they arrive."""
    return np.array([text.encode() if isinstance(text, str) else text for text in texts.flat], object).reshape(
        texts.shape
    )


class Answer:
    """A callable whose result the test chooses."""

    def __init__(self):
        self.result = None

    def __call__(self, requests):
        return self.result


@pytest.fixture(scope="module", params=[False, True], ids=["lenient", "strict"])
def answer(bind, request):
    answer = Answer()
    answer.strict = request.param
    answer.model = bind(answer, outputs=OUTPUTS, strict=request.param)
    return answer


def assert_refused(answer, traffic, message):
    with pytest.raises(PyTritonClientInferenceServerError, match=message):
        traffic.infer(answer.model, X)
    answer.result = [RIGHT]
    assert_same(traffic.infer(answer.model, X)["y"], X)


@pytest.mark.parametrize("case", NEVER)
def test_a_malformed_result_is_an_error_and_the_model_keeps_serving(answer, traffic, case):
    answer.result, message = NEVER[case]
    assert_refused(answer, traffic, message)


@pytest.mark.parametrize("case", STRICTLY_NEVER)
def test_what_contradicts_the_declaration_is_an_error_in_strict_mode_alone(answer, traffic, case):
    answer.result, message = STRICTLY_NEVER[case]
    if answer.strict:
        assert_refused(answer, traffic, message)
    else:
        got = traffic.infer(answer.model, X)
        for name in got:
            assert got[name].shape == answer.result[0][name].shape


@pytest.mark.parametrize("case", ALWAYS)
def test_what_fits_the_declaration_is_sent(answer, traffic, case):
    answer.result = with_one(**ALWAYS[case])
    got = traffic.infer(answer.model, X)
    assert got.keys() == RIGHT.keys()
    for name, array in ALWAYS[case].items():
        assert_same(got[name], encoded(array) if array.dtype.kind in "OU" else array)


def test_without_a_batch_axis_the_shape_is_checked_as_declared(bind, traffic):
    answer = Answer()
    answer.model = bind(answer, outputs=OUTPUTS, batching=False, strict=True)
    answer.result = [{"y": X[0], "n": np.ones((3, 2), np.int32), "text": objects(b"a")[0]}]
    assert_same(traffic.infer(answer.model, X[0], sample=True)["y"], X[0])
    answer.result = with_one(y=X)
    with pytest.raises(PyTritonClientInferenceServerError, match=r"shape \(2, 4\), expected \(4,\)"):
        traffic.infer(answer.model, X[0], sample=True)
