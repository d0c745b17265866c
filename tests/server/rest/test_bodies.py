"""Bodies that are no JSON, and responses that are none: forms, files, arrays."""

import gzip
import io
import json
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pytriton.decorators import batch
from pytriton.model_config import Tensor
from tests.server.rest.ways import RunningApp

pytestmark = pytest.mark.either_proxy

NPY, OCTETS = "application/x-npy", "application/octet-stream"


def size(image: Image.Image, factor: int = 1, note: str = "") -> dict[str, Any]:
    return {"size": [each * factor for each in image.size], "note": note}


def grey(image: Image.Image) -> Image.Image:
    return image.convert("L")


def backwards(content: bytes) -> bytes:
    return content[::-1]


def joined(words: list[str], numbers: list[int]) -> dict[str, Any]:
    return {"words": words, "numbers": numbers}


def member(order: dict[str, Any]) -> list[str]:
    return sorted(order)


@batch
def double(x: NDArray[np.float32]) -> dict[str, np.ndarray]:
    return {"y": x * 2}


@batch
def both(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    return {"plus": a + b, "minus": a - b}


@pytest.fixture(scope="module", autouse=True)
def models(app: RunningApp) -> None:
    for function in (size, grey, backwards, joined, member):
        app.triton.bind(function)
    matrix = [[Tensor(name=name, shape=(2, 3), dtype=np.float32)] for name in ("x", "y")]
    app.triton.bind("double", double, *matrix)
    row = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in ("x", "y")]
    app.triton.bind("double_row", double, *row)
    pairs = [
        [Tensor(name=name, shape=(-1,), dtype=np.int64) for name in names] for names in (("a", "b"), ("plus", "minus"))
    ]
    app.triton.bind("both", both, *pairs)


def png(width: int = 3, height: int = 2) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (250, 10, 10)).save(file, "PNG")
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_an_image_can_be_uploaded_with_a_form(app):
    response = app.post(
        "/predict/size", files={"image": ("a.png", png(), "image/png")}, data={"factor": "2", "note": "ä"}
    )
    assert response.json() == {"result": {"size": [6, 4], "note": "ä"}}


def test_an_image_can_be_the_whole_body_with_the_rest_in_the_url(app):
    response = app.post("/predict/size?factor=3&note=a%20b", content=png(), headers={"content-type": "image/png"})
    assert response.json() == {"result": {"size": [9, 6], "note": "a b"}}


def test_an_image_is_answered_as_a_file_on_demand(app):
    response = app.post("/predict/grey", content=png(), headers={"content-type": "image/png", "accept": "image/png"})
    assert response.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(response.content)).mode == "L"


def test_what_is_no_image_names_the_input(app):
    status, error = app.refusal("/predict/size", files={"image": ("a.png", b"no image")})
    assert status == 422
    assert error["details"][0]["path"] == ["image"]


def test_bytes_come_and_go_raw(app):
    content = bytes(range(256)) * 10
    headers = {"content-type": OCTETS, "accept": OCTETS}
    response = app.post("/predict/backwards", content=content, headers=headers)
    assert response.content == content[::-1]
    assert response.headers["content-type"] == OCTETS
    response = app.post("/predict/backwards", files={"content": content}, headers={"accept": OCTETS})
    assert response.content == content[::-1]


def test_lists_are_parts_of_one_name_or_json(app):
    parts = [("words", (None, "a")), ("words", (None, "[b")), ("numbers", (None, "1")), ("numbers", (None, "2"))]
    assert app.post("/predict/joined", files=parts).json() == {"result": {"words": ["a", "[b"], "numbers": [1, 2]}}
    parts = [("words", (None, '["a"]')), ("numbers", (None, "[]"))]
    assert app.post("/predict/joined", files=parts).json() == {"result": {"words": ["a"], "numbers": []}}


def test_an_object_is_json_in_a_form(app):
    response = app.post("/predict/member", files={"order": (None, '{"b": 1, "a": [1]}')})
    assert response.json() == {"result": ["a", "b"]}


def test_a_form_that_is_none_is_refused(app):
    for content, kind in (
        (b"", "multipart/form-data"),
        (b"", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\nno name\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\ncut", "multipart/form-data; boundary=x"),
    ):
        status, error = app.refusal("/predict/size", content=content, headers={"content-type": kind})
        assert (status, error["code"]) == (400, "INVALID_REQUEST")


def test_a_part_has_a_bounded_number_of_headers_and_a_form_of_parts(app):
    kind = {"Content-Type": "multipart/form-data; boundary=b"}

    def form(headers: int, parts: int) -> bytes:
        extra = b"".join(b"x-%d: 1\r\n" % index for index in range(headers - 1))
        part = b'--b\r\nContent-Disposition: form-data; name="words"\r\n%b\r\na\r\n' % extra
        return part * parts + b"--b--\r\n"

    assert app.post("/predict/joined", content=form(8, 1000), headers=kind).status_code in (200, 422)
    for headers, parts, message in ((33, 1, "eader"), (1, 1001, "1000 parts")):
        status, error = app.refusal("/predict/joined", content=form(headers, parts), headers=kind)
        assert (status, error["code"]) == (400, "INVALID_REQUEST")
        assert message in error["message"]


def test_arrays_are_files_of_numpy(app):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    response = app.post("/predict/double", content=npy(array), headers={"content-type": NPY, "accept": NPY})
    assert response.headers["content-type"] == NPY
    np.testing.assert_array_equal(np.load(io.BytesIO(response.content)), array * 2)
    response = app.post("/predict/double", content=npy(np.asfortranarray(array)), headers={"content-type": NPY})
    assert response.json() == {"y": (array * 2).tolist()}
    response = app.post("/predict/double", {"x": array.tolist()}, headers={"accept": NPY})
    np.testing.assert_array_equal(np.load(io.BytesIO(response.content)), array * 2)


def test_an_array_with_one_more_dimension_is_a_batch(app):
    arrays = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    response = app.post("/predict/double", content=npy(arrays), headers={"content-type": NPY, "accept": NPY})
    np.testing.assert_array_equal(np.load(io.BytesIO(response.content)), arrays * 2)
    response = app.post("/predict/double", content=npy(arrays), headers={"content-type": NPY})
    assert response.json() == {"predictions": [{"y": each.tolist()} for each in arrays * 2]}


def test_arrays_are_raw_bytes(app):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    headers = {"content-type": OCTETS, "accept": OCTETS}
    response = app.post("/predict/double", content=array.tobytes(), headers=headers)
    assert response.content == (array * 2).tobytes()
    assert (response.headers["x-shape"], response.headers["x-dtype"]) == ("2,3", "float32")
    response = app.post("/predict/double_row", content=array.tobytes(), headers={"content-type": OCTETS})
    assert response.json() == {"y": (array * 2).ravel().tolist()}
    two = app.post("/predict/double", content=array.tobytes() * 2, headers={"content-type": OCTETS})
    assert two.json() == {"predictions": [{"y": (array * 2).tolist()}] * 2}


def test_arrays_can_be_parts_of_a_form(app):
    array = np.arange(3)
    files = {"a": ("a.npy", npy(array), OCTETS), "b": ("b.bin", array.tobytes(), OCTETS)}
    response = app.post("/predict/both", files=files)
    assert response.json() == {"plus": [0, 2, 4], "minus": [0, 0, 0]}
    assert app.post("/predict/both", files={"a": (None, "[1]"), "b": (None, "[2]")}).json() == {
        "plus": [3],
        "minus": [-1],
    }


def test_one_of_several_outputs_is_chosen_in_the_url(app):
    fields = {"a": [3], "b": [1]}
    response = app.post("/predict/both?output=minus", fields, headers={"accept": NPY})
    assert np.load(io.BytesIO(response.content)).tolist() == [2]
    for path in ("/predict/both", "/predict/both?output=none"):
        status, error = app.refusal(path, fields, headers={"accept": NPY})
        assert (status, error["code"]) == (406, "NOT_ACCEPTABLE")
        assert "'minus'" in error["message"]


HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,), }"


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"abc", OCTETS, 422),
        (b"", OCTETS, 422),
        (b"no file", NPY, 400),
        (npy(np.zeros((2, 3), np.float32))[:-1], NPY, 400),
        (b"\x93NUMPY\x01\x00\x02\x00{}", NPY, 400),
        (b"\x93NUMPY\x01\x00\x76\x00" + HUGE.ljust(117) + b"\n", NPY, 400),
        (b"\x93NUMPY\x01\x00\x01\x00{", NPY, 400),
        (b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000, NPY, 400),
        (b"\x93NUMPY\x01\x00\x10\x27" + b"-" * 9_999 + b"1", NPY, 400),
        (npy(np.zeros((3, 2), np.float32)), NPY, 422),
        (npy(np.zeros((2, 3), np.complex64)), NPY, 422),
        (npy(np.zeros((2, 3), "U4")), NPY, 422),
    ],
)
def test_arrays_that_do_not_fit_are_refused(app, content, kind, status):
    assert app.refusal("/predict/double", content=content, headers={"content-type": kind})[0] == status


def test_a_body_of_another_type_is_refused(app):
    for path, kind in (("double", "application/xml"), ("both", OCTETS), ("joined", NPY), ("double", "image/png")):
        status, error = app.refusal(f"/predict/{path}", content=b"x", headers={"content-type": kind})
        assert (status, error["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "deflate", "identity"])
def test_bodies_may_be_compressed(app, encoding):
    compress = {"deflate": zlib.compress, "identity": bytes}.get(encoding, gzip.compress)
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = app.request("POST", "/predict/double_row", content=compress(b'{"x": [1]}'), headers=headers)
    assert (response.status_code, response.json()) == (200, {"y": [2.0]})


@pytest.mark.parametrize(
    ("encoding", "content", "status"),
    [
        ("gzip", b'{"x": [1]}', 400),
        ("gzip", gzip.compress(b'{"x": [1]}')[:-1], 400),
        ("gzip", gzip.compress(b'{"x": [1]}') + b"more", 400),
        ("gzip", gzip.compress(bytes(2 << 20), 1), 413),
        ("br", b'{"x": [1]}', 415),
    ],
    ids=["not compressed", "cut short", "followed by other data", "too large", "unknown encoding"],
)
def test_bodies_that_cannot_be_decompressed_are_refused(app, encoding, content, status):
    headers = {"content-type": "application/json", "content-encoding": encoding}
    assert app.refusal("/predict/double_row", content=content, headers=headers)[0] == status


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html,*/*;q=0.8", "application/x-npy;q=0, */*", "garbage", ""]
)
def test_json_is_the_answer_to_all_who_want_nothing_else_that_we_have(app, accept):
    response = app.post("/predict/double_row", {"x": [1]}, headers={"accept": accept})
    assert response.headers["content-type"] == "application/json"
    assert json.loads(response.content) == {"y": [2.0]}
