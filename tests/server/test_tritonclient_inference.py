"""tritonclient infers: every dtype, both forms of data, chosen outputs, versions, and what is refused."""

import gzip
import zlib
from urllib.request import Request, urlopen

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from tests.server.arrays import NUMBERS, assert_same, filled, values
from tests.server.tritonclients import Answer, only_grpc, only_http

DTYPES = [*NUMBERS, "object"]
SHAPES = [(1, 1), (3, 5)]
COMPRESSIONS = {None: bytes, "gzip": gzip.compress, "deflate": zlib.compress}
TEXTS = np.array([["", "plain"], ["zażółć ☃", 'quote " \\ \n']], dtype=object)


def echo(requests):
    return [dict(request) for request in requests]


@batch
def plus_and_times(x):
    return {"plus": x + 1, "times": x * 2}


@batch
def fails(x):
    raise ValueError("the sky is green")


@pytest.fixture(scope="module")
def echoing(bind):
    """Returns its inputs, one of each dtype and all optional."""
    tensors = [Tensor(name=name, shape=(-1,), dtype=name) for name in DTYPES]
    return bind(echo, [Tensor(t.shape, t.dtype, t.name, optional=True) for t in tensors], tensors, max_batch_size=8)


@pytest.fixture(scope="module")
def two(bind):
    """Has two outputs."""
    return bind(plus_and_times, outputs=[Tensor((-1,), np.float32, name) for name in ("plus", "times")])


@pytest.fixture(scope="module")
def unbatched(bind):
    tensor = Tensor((-1, 2), np.int64, "x")
    return bind(
        lambda requests: [{"y": r["x"]} for r in requests], [tensor], [Tensor((-1, 2), np.int64, "y")], batching=False
    )


@pytest.fixture(scope="module")
def failing(bind):
    return bind(fails)


@pytest.fixture(scope="module")
def versions(triton):
    tensors = [Tensor((-1,), np.float32, "x")], [Tensor((-1,), np.float32, "y")]
    for version in (1, 2):
        triton.bind("versions", batch(lambda x, n=version: {"y": x * 10**n}), *tensors, version, ModelConfig())
    return "versions"


def finite(dtype, shape):
    """Values that JSON can carry."""
    if dtype == "object":
        return np.resize(TEXTS, shape)
    array = values(dtype, shape)
    return np.nan_to_num(array, nan=0.5, posinf=1, neginf=-1) if array.dtype.kind == "f" else array


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_dtype_come_back_as_they_were_sent(api, echoing, dtype):
    for shape in SHAPES:
        sent = values(dtype, shape)
        answer = api.infer(echoing, {dtype: sent}, [dtype])
        assert_same(answer[dtype], sent)
        assert answer.response["outputs"][0]["shape"] == list(shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_without_elements_keep_their_shape(api, echoing, dtype):
    answer = api.infer(echoing, {dtype: values(dtype, (3, 0))}, [dtype])
    assert answer.response["outputs"][0]["shape"] == [3, 0]
    assert answer[dtype] is None or answer[dtype].size == 0  # None in older releases


@only_http
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "float16"])
def test_arrays_travel_as_json_both_ways(api, echoing, dtype):
    for shape in SHAPES:
        sent = finite(dtype, shape)
        inputs = api.inputs({dtype: sent}, binary_data=False)
        wanted = [api.lib.InferRequestedOutput(dtype, binary_data=False)]
        answer = Answer(api.call("infer", echoing, inputs, outputs=wanted))
        assert "data" in answer.response["outputs"][0]
        assert answer[dtype].dtype == sent.dtype
        if dtype == "float64":  # the server's parser is off by up to the last digit
            np.testing.assert_allclose(answer[dtype], sent, rtol=1e-15)
        else:
            assert answer[dtype].tolist() == sent.tolist()  # elements of text are str


@only_http
def test_half_precision_is_no_json(api, echoing):
    inputs = api.inputs({"float16": np.ones((1, 2), np.float16), "int8": np.ones((1, 1), np.int8)})
    wanted = [api.lib.InferRequestedOutput("float16", binary_data=False)]
    with api.refuses("INVALID_ARGUMENT", "FP16"):
        api.call("infer", echoing, inputs, outputs=wanted)


@only_http
def test_bytes_that_are_no_utf8_cannot_travel_as_json(api):
    with pytest.raises(InferenceServerException, match="UTF-8"):
        api.inputs({"object": np.array([[b"\xff\xfe"]], dtype=object)}, binary_data=False)


@only_http
def test_json_and_binary_data_mix_in_one_request(api, echoing):
    number, text = finite("int32", (2, 3)), TEXTS
    inputs = api.inputs({"int32": number}, binary_data=False) + api.inputs({"object": text})
    wanted = [api.lib.InferRequestedOutput("int32"), api.lib.InferRequestedOutput("object", binary_data=False)]
    answer = Answer(api.call("infer", echoing, inputs, outputs=wanted))
    assert_same(answer["int32"], number)
    assert answer["object"].tolist() == text.tolist()
    assert ["data" in output for output in answer.response["outputs"]] == [False, True]


def test_a_model_without_batching_keeps_any_first_axis(api, unbatched):
    for rows in (1, 9):
        sent = np.arange(rows * 2, dtype=np.int64).reshape(rows, 2)
        assert_same(api.infer(unbatched, {"x": sent})["y"], sent)


def test_all_outputs_come_unless_some_are_named(api, two):
    everything = api.infer(two, {"x": filled(1)})
    assert sorted(everything.names()) == ["plus", "times"]
    assert (everything["plus"][0, 0], everything["times"][0, 0]) == (2, 2)
    assert sorted(api.infer(two, {"x": filled(1)}, ["times", "plus"]).names()) == ["plus", "times"]
    some = api.infer(two, {"x": filled(1)}, ["times"])
    assert some.names() == ["times"]
    assert some["plus"] is None


def test_an_output_is_described_and_an_unknown_one_is_none(api, two):
    result = api.infer(two, {"x": filled(1, rows=2)}).result
    output = result.get_output("plus")  # with as_json, gRPC's is None for every name in tritonclient 2.73
    described = output.values() if api.is_http else (output.name, output.datatype, list(output.shape))
    assert list(described)[:3] == ["plus", "FP32", [2, 4]]
    assert result.get_output("unknown") is None
    assert result.as_numpy("unknown") is None


@only_grpc
def test_messages_and_json_of_a_result_say_the_same(api, two):
    result = api.infer(two, {"x": filled(1)}, request_id="7").result
    message, reply = result.get_response(), result.get_response(as_json=True)
    assert (message.id, message.model_name, message.model_version) == ("7", two, "1")
    assert (reply["id"], reply["model_name"], reply["model_version"]) == ("7", two, "1")
    assert [output.name for output in message.outputs] == [output["name"] for output in reply["outputs"]]


def test_the_answer_names_the_request_and_the_model(api, two):
    assert "id" not in api.infer(two, {"x": filled(1)}).response
    response = api.infer(two, {"x": filled(1)}, request_id="zażółć 1").response
    assert (response["id"], response["model_name"], response["model_version"]) == ("zażółć 1", two, "1")


@pytest.mark.parametrize(("version", "served", "factor"), [("1", "1", 10), ("2", "2", 100), ("", "2", 100)])
def test_a_version_can_be_chosen_and_else_the_latest_answers(api, versions, version, served, factor):
    answer = api.infer(versions, {"x": filled(1)}, model_version=version)
    assert answer.response["model_version"] == served
    assert answer["y"][0, 0] == factor


@pytest.mark.parametrize("name", ["model", "version"])
def test_unknown_models_and_versions_are_not_found(api, versions, name):
    with api.refuses("NOT_FOUND", "unknown model"):
        if name == "model":
            api.infer("unknown", {"x": filled(1)})
        else:
            api.infer(versions, {"x": filled(1)}, model_version="3")


def test_a_version_that_is_no_text_is_refused_by_the_client(api, two):
    with api.client_refuses("version must be a string"):
        api.infer(two, {"x": filled(1)}, model_version=1)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        pytest.param({"unknown": filled(1)}, "unexpected inference input 'unknown'", id="unknown input"),
        pytest.param({}, "expected 1 inputs but got 0", id="missing input"),
        pytest.param({"x": filled(1).astype(np.float64)}, "data-type is 'FP64'", id="dtype"),
        pytest.param({"x": np.ones((2, 2, 2), np.float32)}, "unexpected shape", id="rank"),
        pytest.param({"x": filled(1, rows=5)}, "must be <= 4", id="batch above maximum"),
    ],
)
def test_a_request_that_does_not_fit_the_model_is_refused(api, two, inputs, text):
    with api.refuses("INVALID_ARGUMENT", text):
        api.infer(two, inputs)


def test_an_output_that_the_model_lacks_is_refused(api, two):
    with api.refuses("INVALID_ARGUMENT", "unexpected inference output 'unknown'"):
        api.infer(two, {"x": filled(1)}, ["unknown"])


def test_an_error_of_the_callable_is_internal_and_has_its_text(api, failing):
    with api.refuses("INTERNAL", "ValueError: the sky is green"):
        api.infer(failing, {"x": filled(1)})


def test_an_error_tells_its_parts(api, failing):
    with pytest.raises(InferenceServerException) as raised:
        api.infer(failing, {"x": filled(1)})
    error = raised.value
    assert error.message() == "ValueError: the sky is green"
    assert str(error) == f"[{error.status()}] {error.message()}"
    assert bool(error.debug_details()) == (not api.is_http)


@pytest.mark.parametrize(
    ("api", "size_mib"), [("http", 64), ("http.aio", 8), ("grpc", 64), ("grpc.aio", 8)], indirect=["api"]
)
def test_a_large_output_arrives(api, bind, size_mib):
    size = size_mib << 18
    model = bind(lambda requests: [{"y": np.arange(size, dtype=np.float32)[None]} for _ in requests])
    # Left to itself, aiohttp asks the server to compress, which takes seconds.
    options = {"headers": {"Accept-Encoding": "identity"}} if api.is_http else {}
    answer = api.infer(model, {"x": filled(1)}, **options)["y"]
    assert answer.nbytes == size_mib << 20
    assert np.array_equal(answer[0, :: size // 64], np.arange(0, size, size // 64, dtype=np.float32))


def test_an_input_tells_what_it_was_made_of_and_sends_its_last_shape(api, two):
    made = api.lib.InferInput("x", [1, 4], "FP32")
    assert (made.name(), list(made.shape()), made.datatype()) == ("x", [1, 4], "FP32")
    assert made.set_shape([2, 3]) is made
    assert list(made.shape()) == [2, 3]
    assert made.set_data_from_numpy(filled(5, 2, 3)) is made
    assert Answer(api.call("infer", two, [made]))["plus"].tolist() == [[6.0] * 3] * 2
    assert api.lib.InferRequestedOutput("plus").name() == "plus"


@pytest.mark.parametrize(
    "data", [[[1.0]], np.ones((1, 4), np.float64), np.ones((1, 3), np.float32)], ids=["no array", "dtype", "shape"]
)
def test_data_that_do_not_fit_an_input_are_refused_by_the_client(api, data):
    with pytest.raises(InferenceServerException):
        api.lib.InferInput("x", [1, 4], "FP32").set_data_from_numpy(data)


@only_http
def test_parts_of_a_request_are_those_of_the_protocol(api):
    binary, plain = (api.inputs({"x": filled(1)}, binary_data=flag)[0] for flag in (True, False))
    assert binary._get_tensor() == {
        "name": "x",
        "shape": (1, 4),
        "datatype": "FP32",
        "parameters": {"binary_data_size": 16},
    }
    assert binary._get_binary_data() == filled(1).tobytes()
    assert plain._get_tensor()["data"] == [1.0] * 4
    assert plain._get_binary_data() is None
    assert api.lib.InferRequestedOutput("y")._get_tensor() == {"name": "y", "parameters": {"binary_data": True}}


@only_http
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("binary", [True, False])
def test_bodies_made_and_parsed_by_hand_do_as_infer_does(api, two, binary, compression):
    client = api.lib.InferenceServerClient
    inputs = api.inputs({"x": filled(3, rows=2)}, binary_data=binary)
    wanted = [api.lib.InferRequestedOutput(name, binary_data=binary) for name in ("plus", "times")]
    body, header_length = client.generate_request_body(inputs, outputs=wanted, request_id="9", priority=0)
    assert (header_length is not None) is binary
    request = Request(f"http://{api.address}/v2/models/{two}/infer", COMPRESSIONS[compression](body))
    if binary:
        request.add_header("Inference-Header-Content-Length", str(header_length))
    if compression:
        request.add_header("Content-Encoding", compression)
        request.add_header("Accept-Encoding", compression)
    with urlopen(request) as reply:
        body = reply.read()
        length = reply.headers["Inference-Header-Content-Length"]
        encoding = reply.headers["Content-Encoding"]
    assert encoding == compression
    length = length and int(length)
    expected = Answer(api.call("infer", two, inputs, outputs=wanted, request_id="9"))
    for parse in (client.parse_response_body, api.lib.InferResult.from_response_body):
        answer = Answer(parse(body, header_length=length, content_encoding=encoding))
        assert answer.response["id"] == "9"
        for name in ("plus", "times"):
            assert_same(answer[name], expected[name])
