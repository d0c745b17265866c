"""Which requests the edge answers itself, and what of the others the server's own endpoint gets to read."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from pytriton.config import TritonConfig
from tests.server.edge.cases import get, infer, numbers, post, words_of
from tests.server.edge.models import server_of_models
from tests.server.edge.wire import Answer, Client, Request, connected

pytestmark = pytest.mark.either_proxy

MIB = 2**20
TARGET = "/v2/models/echo_FP32/infer"
BODY = infer("echo_FP32", numbers()).body
BRACKETS = gzip.compress(b"[" * (24 * MIB))  # 24 KiB, which once ended the server
WORDS = json.dumps(words_of("a", 1)).encode()
WEIGHT = {"Accept-Encoding": "gzip;q=1e999"}  # which once was beyond the server's numbers


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonConfig]:
    options = {"http_frontend": "native", "http_metrics": True, "http_header_forward_pattern": ".*"}
    with server_of_models(tmp_path_factory.mktemp("models"), **options) as config:
        yield config


@pytest.fixture(autouse=True)
def survivor(config: TritonConfig, client: Client) -> Iterator[None]:
    """The server infers after each test, too."""
    yield
    with connected(config) as other:
        assert other.ask(Request("POST", TARGET, BODY)).status == 200


def forwarded(client: Client) -> int:
    """How many requests the server's own endpoint has got."""
    page = client.ask(get("/metrics")).data.decode()
    lines = [line for line in page.splitlines() if 'requests_total{route="triton"' in line]
    return sum(int(float(line.split()[-1])) for line in lines)


def answered_here(client: Client, request: Request) -> Answer:
    before = forwarded(client)
    answer = client.ask(request)
    assert forwarded(client) == before
    return answer


@pytest.mark.parametrize("headers", [{}, {"Accept-Encoding": "gzip"}, {"Accept-Encoding": "deflate"}, WEIGHT])
@pytest.mark.parametrize("action", ["infer", "generate", "generate_stream"])
def test_an_inference_whose_answer_is_to_be_compressed_is_read_here(client, action, headers):
    request = Request("POST", f"/v2/models/words/{action}", BRACKETS, {"Content-Encoding": "gzip", **headers})
    answer = answered_here(client, request)
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize("version", ["9999999999999999999", "1" * 40, "1e3", "-1", "%31", ""])
@pytest.mark.parametrize("action", ["infer", "generate", "ready", "config"])
def test_a_version_that_cannot_be_read_is_no_path(client, action, version):
    method = "POST" if action in ("infer", "generate") else "GET"
    target = f"/v2/models/echo_FP32/versions/{version}/{action}"
    headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    body = BRACKETS if method == "POST" else b""
    assert answered_here(client, Request(method, target, body, headers)).status == 404


@pytest.mark.parametrize("kind", ["gzip", "deflate"])
def test_a_body_that_is_not_compressed_as_it_says_is_refused_here(client, kind):
    compress = {"gzip": gzip.compress, "deflate": zlib.compress}[kind]
    for body in (BODY, compress(BODY)[:-9], compress(BODY) + b"more", b""):
        answer = answered_here(client, Request("POST", TARGET, body, {"Content-Encoding": kind, **WEIGHT}))
        assert answer.status == 400
        assert "compressed" in answer.error


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "x", "identity, gzip", "zstd", "gzip;q=1"])
def test_an_unknown_encoding_is_refused_here(client, encoding):
    for target in (TARGET, "/v2/repository/index", "/v2/logging", "/v2/models/words/generate"):
        assert answered_here(client, Request("POST", target, BODY, {"Content-Encoding": encoding})).status == 415


def test_an_unknown_region_is_refused_here_whatever_the_weights_of_encodings(client):
    parameters = {"shared_memory_region": "none", "shared_memory_byte_size": 12}
    request = infer("echo_FP32", numbers(more={"data": None, "parameters": parameters}), headers=WEIGHT)
    answer = client.ask(request)
    assert (answer.status, answer.error) == (404, "Unable to find shared memory region: 'none'")


ACCEPTED = {
    "gzip": "gzip",
    "deflate": "deflate",
    "GZip": "gzip",
    "gzip;q=0.5": "gzip",
    "gzip; q=0.001": "gzip",
    "gzip;q=0": None,
    "gzip;q=0.000": None,
    "gzip;q=1.001": None,
    "gzip;q=1e999": None,
    "gzip;q=-1": None,
    "gzip;q=": None,
    "gzip;level=9": None,
    "gzip, deflate": None,
    "gzip;q=0.5, deflate;q=0": "gzip",
    "gzip, br": None,
    "gzip, br;q=0": "gzip",
    "gzip, *": None,
    "*": None,
    "": None,
    ",,gzip,": "gzip",
    "identity, gzip": None,
    "identity;q=0.4, deflate;q=0.5": "deflate",
    "identity;q=0.5, deflate;q=0.4": None,
    "identity;q=0, gzip;q=0.4, deflate;q=0.5": "deflate",
    "*;q=0, gzip, deflate": "gzip",
    "identity;q=0, *": "gzip",
    "identity;q=0": None,
    "br, " * 31 + "identity;q=0": None,  # all 32 are read, and leave nothing to choose from
    "br, " * 40 + "gzip, identity;q=0": None,
}


@pytest.mark.parametrize("accepted", ACCEPTED)
@pytest.mark.parametrize("action", ["infer", "generate"])
def test_answers_are_compressed_as_the_weights_say(client, action, accepted):
    request = post(f"/v2/models/words/{action}", WORDS, Accept_Encoding=accepted)
    if action == "infer":
        request = Request("POST", TARGET, BODY, request.headers)
    plain = client.ask(Request("POST", request.target, request.body))
    answer = answered_here(client, request)
    wanted = ACCEPTED[accepted]
    assert answer.headers.get("content-encoding") == (wanted if wanted in ("gzip", "deflate") else None)
    assert (answer.status, answer.json, answer.data) == (200, plain.json, plain.data)


@pytest.mark.parametrize("kind", ["gzip", "deflate"])
@pytest.mark.parametrize("is_binary", [False, True], ids=["JSON", "binary"])
def test_large_answers_are_compressed_as_well(client, kind, is_binary):
    array = np.tile(np.arange(1000, dtype=np.float32), (1, 300))
    headers = {"Accept-Encoding": kind}
    request = infer("echo_FP32", numbers(array), parameters={"binary_data_output": is_binary}, headers=headers)
    answer = answered_here(client, request)
    assert answer.headers["content-encoding"] == kind
    found = np.frombuffer(answer.data, np.float32) if is_binary else answer.json["outputs"][0]["data"]
    assert np.array_equal(found, array[0])


def test_streams_and_errors_are_never_compressed(client):
    stream = answered_here(client, post("/v2/models/stream/generate_stream", words_of("a", 2), Accept_Encoding="gzip"))
    assert "content-encoding" not in stream.headers
    assert stream.data.count(b"data: ") == 2
    error = answered_here(client, post(TARGET, "no JSON", Accept_Encoding="gzip"))
    assert "content-encoding" not in error.headers
    assert error.error


RESERVED = ["sequence_id", "SEQUENCE_START", "sequence_end", "Priority", "timeout", "triton_final_response", "headers"]


@pytest.mark.parametrize("name", RESERVED)
def test_a_header_takes_no_name_that_the_protocol_reserves(client, name):
    answer = client.ask(infer("told", numbers(), headers={name: "1", "x-other": "2"}))
    assert answer.status == 200, answer.error
    (told,) = answer.json["outputs"][0]["data"]
    assert name.lower() not in told.lower()
    assert "'x-other', '2'" in told


@pytest.mark.parametrize("name", ["%6dodel", "no model", "no%2fmodel", "a%", "%zz", "a%00b"])
def test_names_in_paths_are_decoded_or_no_names(client, name):
    request = Request("POST", f"/v2/models/{name.replace(' ', '%20')}/infer", BODY, {"Accept-Encoding": "gzip"})
    answer = answered_here(client, request)
    assert answer.status == 404
    known = {"%6dodel": "'model'", "no model": "'no model'", "no%2fmodel": "'no/model'"}.get(name, "Not Found")
    assert known in answer.error


def test_what_the_server_says_of_itself_and_its_models_is_said_here(client):
    for target in (
        "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/pair", "/v2/models/pair/ready",
        "/v2/models/pair/config", "/v2/models/pair/stats", "/v2/models/stats",
    ):  # fmt: skip
        assert answered_here(client, get(target)).status == 200
    assert len(answered_here(client, post("/v2/repository/index", {"ready": True})).json) > 10


@pytest.mark.parametrize("target", ["/v2/models/pair/trace/setting", "/v2/logging", "/v2/systemsharedmemory/status"])
def test_the_body_of_a_get_is_not_passed_on(client, target):
    # What is read as a second request would have its answer before the next one's.
    hidden = get("/v2/models/unknown/config").encoded()
    first = client.ask(Request("GET", target, hidden))
    assert first.status == 200
    assert client.ask(get("/v2/models/pair")).json["name"] == "pair"


PATHS = [
    ("GET", "/v2"), ("GET", "/v2/health/live"), ("GET", "/v2/health/ready"), ("GET", "/v2/models/pair"),
    ("GET", "/v2/models/pair/versions/1/ready"), ("GET", "/v2/models/pair/config"), ("GET", "/v2/models/stats"),
    ("POST", "/v2/models/pair/infer"), ("POST", "/v2/models/words/generate"),
    ("POST", "/v2/models/words/generate_stream"), ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/none/load"), ("POST", "/v2/repository/models/none/unload"),
    ("GET", "/v2/logging"), ("POST", "/v2/logging"), ("GET", "/v2/trace/setting"), ("POST", "/v2/trace/setting"),
    ("GET", "/v2/models/pair/trace/setting"), ("POST", "/v2/models/pair/trace/setting"),
    ("GET", "/v2/systemsharedmemory/status"),
    ("POST", "/v2/systemsharedmemory/region/r/register"), ("POST", "/v2/systemsharedmemory/unregister"),
    ("GET", "/v2/cudasharedmemory/status"), ("POST", "/v2/cudasharedmemory/region/r/register"),
]  # fmt: skip
CONTENTS = {
    "nothing": b"",
    "an empty object": b"{}",
    "brackets": b"[" * MIB,
    "brackets in a member": b'{"parameters":' + b"[" * MIB,
    "half a text": b'{"a":"',
    "bytes": bytes(range(256)),
    "an object of numbers": b'{"key":1e999,"byte_size":-1,"inputs":1}',
}
ENCODED = {
    "": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "gzip that is cut off": lambda body: gzip.compress(body)[:-4],
    "br": bytes,
}


def is_load_of_nothing(target: str, answer: Answer) -> bool:
    """A model that is not there cannot be loaded, which the server calls its own error."""
    return target.endswith("/none/load") and (answer.status, "failed to load 'none'" in answer.json["error"]) == (
        500,
        True,
    )


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT"])
@pytest.mark.parametrize("encoding", ENCODED)
def test_each_path_with_each_body_in_each_encoding_has_an_answer(client, method, encoding):
    for target in dict.fromkeys(target for _, target in PATHS):
        for content, body in CONTENTS.items():
            headers = {"Accept-Encoding": "gzip", "Content-Encoding": encoding.split()[0] if encoding else "identity"}
            answer = client.ask(Request(method, target, ENCODED[encoding](body), headers))
            what = (method, target, content, encoding, answer)
            if (method, target) not in PATHS:
                assert answer.status == 405, what
            elif method == "POST" and encoding in ("br", "gzip that is cut off"):
                assert answer.status in ((415,) if encoding == "br" else (400,)), what
            else:
                assert answer.status < 500 or is_load_of_nothing(target, answer), what


def test_bodies_of_settings_are_bounded(client):
    many = json.dumps({f"a{number}": 1 for number in range(2000)})
    for target in ("/v2/logging", "/v2/trace/setting", "/v2/models/x/trace/setting"):
        for body in (many, json.dumps({"log_file": "x" * 70_000}), '{"a":"\\u0000"}', '{"a":' * 20 + "1" + "}" * 20):
            assert answered_here(client, post(target, body)).status == 400
    parameters = {f"file:{number}": "" for number in range(2000)}
    assert answered_here(client, post("/v2/repository/models/x/load", {"parameters": parameters})).status == 400
