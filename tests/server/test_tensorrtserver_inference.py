"""``InferContext`` of the first protocol: values, classes, sequences, errors and counts, over all that it speaks."""

import traceback
from queue import Queue

import numpy as np
import pytest

from pytriton.client.exceptions import PyTritonClientError
from pytriton.compat.tensorrtserver.api import InferContext, InferenceServerException, InferRequestHeader, ProtocolType
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonRequestError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.arrays import NUMBERS, assert_same, filled, values
from tests.server.own_server import serving
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S
from tests.server.tensorrtserver_contexts import CLASS, KINDS, RAW, Contexts

pytestmark = pytest.mark.either_proxy

DTYPES = [*NUMBERS, "bytes"]
X = filled(2)[0]


@pytest.fixture(scope="module", params=KINDS)
def contexts(triton_config, request):
    with Contexts(triton_config, request.param) as contexts:
        yield contexts


@pytest.fixture
def own_contexts(free_config, contexts):
    """For a test's own server, of the kind that the other tests have in turn."""
    with Contexts(free_config, contexts.kind) as own:
        yield own


@pytest.fixture(scope="module")
def echo(bind):
    """Returns what it gets; each input may be left out."""
    outputs = [Tensor((-1, -1), dtype, dtype) for dtype in DTYPES]
    inputs = [Tensor((-1, -1), dtype, dtype, optional=True) for dtype in DTYPES]
    return bind(lambda requests: [dict(request) for request in requests], inputs, outputs, max_batch_size=4)


@pytest.fixture(scope="module")
def doubling(bind):
    return bind(batch(lambda x: {"y": x * 2}), [Tensor((4,), np.float32, "x")], max_batch_size=4)


@pytest.fixture(scope="module")
def choosy(bind):
    """Fails for values below 0."""

    def infer(requests):
        if any(request["x"].min() < 0 for request in requests):
            raise PyTritonRequestError("too small", code="INVALID_ARG")
        return [{"y": request["x"]} for request in requests]

    return bind(infer, max_batch_size=4)


def echo_x(requests):
    return [{"y": request["x"]} for request in requests]


class Log(list):
    """A model that keeps its requests."""

    def __call__(self, requests):
        self.extend(requests)
        return [{"y": request["x"]} for request in requests]


@pytest.fixture
def log(bind):
    log = Log()
    log.model = bind(log)
    return log


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_as_it_was_sent(contexts, echo, dtype, rows):
    for shape in ((2, 3), (1, 1), (2, 0)):
        sent = list(values(dtype, (rows, *shape)))
        results = contexts.infer(echo).run({dtype: sent}, {dtype: RAW}, rows)
        assert list(results) == [dtype]
        for got, given in zip(results[dtype], sent, strict=True):
            assert_same(got, given)
            assert got.flags.writeable


def test_a_model_without_batching_takes_one_array(contexts, bind):
    model = bind(echo_x, batching=False)
    context = contexts.infer(model)
    assert context.run({"x": [X]}, {"y": RAW})["y"][0].tolist() == X.tolist()
    with pytest.raises(InferenceServerException, match="takes 1 to 1"):
        context.run({"x": [X, X]}, {"y": RAW}, 2)


def test_elements_of_the_right_size_are_sent_as_they_are(contexts, doubling):
    """As the first protocol did, which sent bytes."""
    given = X.view(np.int32)[::-1]
    assert contexts.infer(doubling).run({"x": [given]}, {"y": RAW})["y"][0].tolist() == (X[::-1] * 2).tolist()


def test_classes_and_raw_values_come_together(contexts, bind):
    outputs = [Tensor((-1,), np.float32, "best"), Tensor((-1,), np.float32, "all")]
    model = bind(batch(lambda x: {"best": x, "all": x}), outputs=outputs)
    rows = [np.array([0.5, 4, 3], np.float32), np.array([-1, -2, -0.5], np.float32)]
    context = contexts.infer(model)
    results = context.run({"x": rows}, {"best": (CLASS, 2), "all": RAW}, 2)
    assert results["best"] == [[(1, 4.0, None), (2, 3.0, None)], [(2, -0.5, None), (0, -1.0, None)]]
    assert [row.tolist() for row in results["all"]] == [row.tolist() for row in rows]
    more = context.run({"x": rows[:1]}, {"best": (CLASS, np.int64(9))})
    assert [index for index, _, _ in more["best"][0]] == [1, 2, 0]


def test_classes_of_a_bound_model_have_its_labels(contexts, bind):
    outputs = [Tensor((3,), np.float32, "y", labels=["cat", "a: b", ""])]
    context = contexts.infer(bind(batch(lambda x: [x]), outputs=outputs))
    results = context.run({"x": [np.array([0.5, 4, 3], np.float32)]}, {"y": (CLASS, 3)})
    assert results["y"] == [[(1, 4.0, "a: b"), (2, 3.0, None), (0, 0.5, "cat")]]


def test_strings_have_no_classes(contexts, echo):
    with pytest.raises(InferenceServerException, match="no classes"):
        contexts.infer(echo).run({"bytes": [values("bytes", (1, 1))]}, {"bytes": (CLASS, 1)})


@pytest.mark.parametrize(
    ("inputs", "outputs", "options", "message"),
    [
        ({}, {"y": RAW}, {}, "also needs the inputs x"),
        ({"x": [X], "z": [X]}, {"y": RAW}, {}, "has no input 'z'; it has x"),
        ({"z": [X]}, {"y": RAW}, {}, "has no input 'z'; it has x"),
        ([X], {"y": RAW}, {}, "inputs must be a dict"),
        ({"x": [X]}, {"y": RAW}, {"batch_size": 2}, "has 1 arrays, but batch_size is 2"),
        ({"x": []}, {"y": RAW}, {}, "has 0 arrays"),
        ({"x": [X] * 5}, {"y": RAW}, {"batch_size": 5}, "takes 1 to 4"),
        ({"x": [X]}, {"y": RAW}, {"batch_size": -1}, "takes 1 to 4"),
        ({"x": [X]}, {"y": RAW}, {"corr_id": "1"}, "corr_id must be an int"),
        ({"x": X}, {"y": RAW}, {}, "must be a list of arrays"),
        ({"x": [X.tolist()]}, {"y": RAW}, {}, "must be a list of arrays"),
        ({"x": [X, X[:2]]}, {"y": RAW}, {"batch_size": 2}, "differ in their shapes"),
        ({"x": [X[:3]]}, {"y": RAW}, {}, r"has shape \[3\], but model '.*' takes \[4\]"),
        ({"x": [X[np.newaxis]]}, {"y": RAW}, {}, r"has shape \[1, 4\]"),
        ({"x": [X.astype(np.float64)]}, {"y": RAW}, {}, "has dtype float64, but the model takes float32"),
        ({"x": [X.astype(object)]}, {"y": RAW}, {}, "has dtype object"),
        ({"x": [X]}, {"z": RAW}, {}, "has no output 'z'"),
        ({"x": [X]}, ["y"], {}, "outputs must be a dict"),
        ({"x": [X]}, {"y": "raw"}, {}, "ResultFormat.RAW"),
        ({"x": [X]}, {"y": CLASS}, {}, "ResultFormat.RAW"),
        ({"x": [X]}, {"y": (CLASS, 0)}, {}, "ResultFormat.RAW"),
        ({"x": [X]}, {"y": RAW}, {"flags": 4}, "bits other than"),
        ({"x": [X]}, {"y": RAW}, {"flags": "1"}, "flags must be an int"),
        ({"x": [X]}, {"y": RAW}, {"corr_id": -1}, "correlation id must be 0 to"),
        ({"x": [X]}, {"y": RAW}, {"priority": 1.5}, "priority must be an int"),
        ({"x": [X]}, {"y": RAW}, {"priority": -1}, None),  # each protocol has its own words
    ],
)
def test_what_does_not_fit_is_refused_and_the_next_request_is_not(
    contexts, doubling, inputs, outputs, options, message
):
    context = contexts.infer(doubling)
    context.run({"x": [X]}, {"y": RAW})
    with pytest.raises(InferenceServerException, match=message):
        context.run(inputs, outputs, **options)
    assert context.get_last_request_id() is None
    assert context.get_last_request_model_name() is None
    assert context.run({"x": [X]}, {"y": RAW})["y"][0].tolist() == (X * 2).tolist()
    assert context.get_stat()["completed_request_count"] == 2


def test_a_failing_model_says_why(contexts, choosy):
    context = contexts.infer(choosy)
    context.run({"x": [X]}, {"y": RAW})
    before = context.get_last_request_id()
    with pytest.raises(InferenceServerException) as raised:
        context.run({"x": [-X]}, {"y": RAW})
    error = raised.value
    assert error.message() == "too small"
    assert str(error) == error.message()
    assert (error.request_id(), error.server_id()) == (before + 1, None)
    assert isinstance(error.__context__, PyTritonClientError)
    assert "".join(traceback.format_exception(error)).count("Traceback") == 1
    assert context.get_last_request_id() is None
    assert context.run({"x": [X]}, {"y": RAW})["y"][0].tolist() == X.tolist()
    assert context.get_last_request_id() == before + 2


def test_the_last_request_is_known_by_number_model_and_version(contexts, triton):
    for version in (1, 3):
        name = f"versions-{contexts.kind}"
        tensors = [Tensor((-1,), np.float32, "x")], [Tensor((-1,), np.float32, "y")]
        triton.bind(name, batch(lambda x, version=version: {"y": x * version}), *tensors, model_version=version)
    for asked, answered in ((1, 1), (3, 3), (None, 3), (-1, 3), (np.int32(1), 1)):
        context = contexts.infer(name, asked)
        assert context.get_last_request_id() is None
        assert context.get_last_request_model_version() is None
        numbers = []
        for _ in range(2):
            assert context.run({"x": [X]}, {"y": RAW})["y"][0][0] == X[0] * answered
            numbers.append(context.get_last_request_id())
        assert numbers[1] > numbers[0]
        assert (context.get_last_request_model_name(), context.get_last_request_model_version()) == (name, answered)


def test_correlation_ids_stay_until_there_is_another_one_and_flags_travel_with_them(contexts, log):
    start, end = InferRequestHeader.FLAG_SEQUENCE_START, InferRequestHeader.FLAG_SEQUENCE_END
    context = contexts.infer(log.model, correlation_id=7)
    assert context.correlation_id() == 7
    for options in ({"flags": start}, {}, {"corr_id": 8, "flags": start | end}, {"flags": end}):
        context.run({"x": [X]}, {"y": RAW}, 1, **options)
    seen = [(each.correlation_id, each.sequence_start, each.sequence_end) for each in log]
    assert seen == [(7, True, False), (7, False, False), (8, True, True), (8, False, True)]
    assert context.correlation_id() == 8


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1])
def test_correlation_ids_have_64_bits(contexts, log, number):
    context = contexts.infer(log.model, correlation_id=number)
    context.run({"x": [X]}, {"y": RAW})
    assert (log[0].correlation_id, context.correlation_id()) == (number, number)


def test_without_a_correlation_id_there_is_no_sequence(contexts, log):
    contexts.infer(log.model).run({"x": [X]}, {"y": RAW}, flags=InferRequestHeader.FLAG_SEQUENCE_START)
    assert log[0].correlation_id is None
    assert log[0].sequence_start is False


def test_timeouts_and_priorities_travel(contexts, log):
    context, done = contexts.infer(log.model), Queue()
    context.run({"x": [X]}, {"y": RAW})
    context.run({"x": [X]}, {"y": RAW}, timeout_us=10**9, priority=1)
    context.run({"x": [X]}, {"y": RAW}, 1, 0, 0, 1, 10**9)
    context.async_run(lambda _, number: done.put(number), {"x": [X]}, {"y": RAW}, 1, 0, 0, 1, 10**9)
    done.get(timeout=DEADLINE_S)
    assert [request.deadline is None for request in log] == [True, False, False, False]


@pytest.mark.parametrize(("size", "rows"), [(np.int64(2), 2), (0, 1), (np.int32(0), 1)])
def test_a_batch_size_may_be_an_integer_of_numpy_and_0_is_1(contexts, doubling, size, rows):
    assert len(contexts.infer(doubling).run({"x": [X] * rows}, {"y": RAW}, size)["y"]) == rows


def test_headers_reach_the_callable(contexts, log):
    context = contexts.infer(log.model, http_headers=["X-First: a:b "], headers={"x-second": "c"})
    context.run({"x": [X]}, {"y": RAW})
    got = {name.lower(): value for name, value in log[0].parameters.items() if name.lower().startswith("x-")}
    assert got == ({"x-first": "a:b", "x-second": "c"} if contexts.is_http else {"x-second": "c"})


def test_times_add_up(contexts, doubling):
    context = contexts.infer(doubling)
    assert set(context.get_stat().values()) == {0}
    before = context.get_stat()
    for count in (1, 2, 3):
        context.run({"x": [X]}, {"y": RAW})
        stat = context.get_stat()
        assert stat["completed_request_count"] == count
        assert all(stat[name] > before[name] for name in stat)
        parts = stat["cumulative_send_time_ns"] + stat["cumulative_receive_time_ns"]
        assert parts < stat["cumulative_total_request_time_ns"]
        before = stat


def test_a_stream_gives_the_first_response_of_a_decoupled_model(triton_config, counter):
    with Contexts(triton_config, "stream") as contexts:
        context = contexts.infer(counter)
        for _ in range(2):
            assert len(context.run({"x": [np.array([3], np.float32)]}, {"y": RAW})["y"]) == 1
        with pytest.raises(InferenceServerException, match="no response"):
            context.run({"x": [np.array([0], np.float32)]}, {"y": RAW})


def test_what_cannot_be_asked_of_a_server_is_refused_at_once(contexts, doubling):
    for arguments, message in (
        (("unknown",), "unknown"),
        (("unknown", 3), "'unknown' version 3|model 'unknown'"),
        ((doubling, 9), f"{doubling}.*9"),
        ((doubling, "1"), "model_version must be an int"),
        ((7,), None),
    ):
        with pytest.raises(InferenceServerException, match=message):
            contexts.infer(*arguments)
    with pytest.raises(InferenceServerException, match="correlation id must be"):
        contexts.infer(doubling, correlation_id=2**64)
    with pytest.raises(InferenceServerException, match="correlation id must be"):
        contexts.infer(doubling, correlation_id=-1)


@pytest.mark.parametrize("protocol", [2, "HTTP", None])
def test_a_protocol_is_one_of_two(protocol):
    with pytest.raises(InferenceServerException, match="must be ProtocolType"):
        InferContext("localhost:8000", protocol, "m")


def test_streams_need_grpc():
    with pytest.raises(InferenceServerException, match="streaming needs"):
        InferContext("localhost:8000", ProtocolType.HTTP, "m", streaming=True)


@pytest.mark.parametrize(("headers", "message"), [(["no colon"], "name:value"), (["a b:c"], "not a header name")])
def test_headers_are_checked(headers, message):
    with pytest.raises(InferenceServerException, match=message):
        InferContext("localhost:8000", ProtocolType.HTTP, "m", http_headers=headers)


def test_a_server_that_is_not_there_is_told_at_once():
    with reserved_ports(1) as (port,):
        for protocol in ProtocolType:
            with pytest.raises(InferenceServerException, match="connection"):
                InferContext(f"127.0.0.1:{port}", protocol, "m")


def test_a_server_that_ends_is_an_error_and_one_that_comes_back_is_not(free_config, own_contexts):
    with serving(free_config) as triton:
        triton.run()
        context = own_contexts.infer("m")
        assert context.run({"x": [X]}, {"y": RAW})["y"][0].tolist() == (X * 2).tolist()
    with pytest.raises(InferenceServerException):
        context.run({"x": [X]}, {"y": RAW})
    with serving(free_config) as triton:
        triton.run()
        assert context.run({"x": [X]}, {"y": RAW})["y"][0].tolist() == (X * 2).tolist()


def test_where_the_configuration_is_restricted_the_metadata_do(free_config, own_contexts):
    security = TritonSecurityConfig(restricted_endpoints=["model-config"])
    with Triton(config=free_config, security_config=security) as triton:
        tensors = [Tensor((2,), np.float32, "x")], [Tensor((2,), np.float32, "y")]
        for name in ("batching", "single"):
            triton.bind(name, echo_x, *tensors, config=ModelConfig(batching=name == "batching"))
        rows = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
        with own_contexts.infer("batching") as batching, own_contexts.infer("single") as single:
            results = batching.run({"x": rows}, {"y": RAW}, 2)
            assert [row.tolist() for row in results["y"]] == [[1, 2], [3, 4]]
            assert single.run({"x": rows[:1]}, {"y": RAW})["y"][0].tolist() == [1, 2]
        variable = [Tensor((-1,), np.float32, "x")], [Tensor((-1,), np.float32, "y")]
        triton.bind("variable", echo_x, *variable, config=ModelConfig(batching=False))
        with own_contexts.infer("variable") as context:
            for row in (X, X[:2]):
                assert context.run({"x": [row]}, {"y": RAW})["y"][0].tolist() == row.tolist()


def test_a_url_may_have_a_scheme(contexts, doubling):
    address, protocol = contexts.server
    with InferContext(f"http://{address}", protocol, doubling) as context:
        assert context.run({"x": [X]}, {"y": RAW})["y"][0].tolist() == (X * 2).tolist()


def test_verbose_contexts_print(contexts, doubling, capfd):
    contexts.infer(doubling, verbose=True).run({"x": [X]}, {"y": RAW})
    printed = capfd.readouterr().out
    assert f"infer at {'http' if contexts.is_http else 'grpc'}://{contexts.server[0]}: " in printed
    contexts.infer(doubling).run({"x": [X]}, {"y": RAW})
    assert "infer at" not in capfd.readouterr().out
