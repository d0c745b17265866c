"""Heads of requests, and responses put together, without sockets."""

import contextlib
import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.client.auth import TritonUrl
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientValueError
from pytriton.client.http_messages import MOST_HEAD_BYTES, RequestWriter, ResponseReader
from tests.unit.loopback import fed

TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=8) | st.sampled_from(
    ["\r\n", "a\r\nHost: b", "x\ny", "é", "a: b", ""]
)


def writer():
    return RequestWriter(TritonUrl.from_url("http://host:1/base"))


@given(headers=st.dictionaries(TEXTS, TEXTS, max_size=3), uri=TEXTS)
def test_a_head_is_refused_or_has_just_the_headers_it_was_given(headers, uri):
    try:
        head = writer().head(b"GET", uri, headers, 0)
    except PyTritonClientValueError:
        return
    first, *lines = head.removesuffix(b"\r\n\r\n").decode("ascii").split("\r\n")
    assert first == f"GET /base/{uri} HTTP/1.1"
    assert len(first.split(" ")) == 3
    assert lines == ["Host: host:1", *(f"{name}: {value}" for name, value in headers.items()), "Content-Length: 0"]


@pytest.mark.parametrize("headers", [{"a": "b\r\nc: d"}, {"a\r\nb": "c"}, {"a": "é"}, {"a": "\x00"}, {"a b": "c"}])
def test_a_head_is_checked_though_the_one_before_had_the_same_text(headers):
    heads = writer()
    heads.head(b"GET", "v2", {"a": "b", "c": "d"}, 0)
    with pytest.raises(PyTritonClientValueError, match="cannot be sent"):
        heads.head(b"GET", "v2", headers, 0)


@pytest.mark.parametrize("uri", ["v2 HTTP/1.1", "v2\r\nHost: x", "v2/é", "\x7f"])
def test_a_path_that_is_not_quoted_is_refused(uri):
    with pytest.raises(PyTritonClientValueError, match="not quoted"):
        writer().head(b"GET", uri, {}, 0)


def test_a_host_beyond_ascii_is_sent_as_it_is_looked_up():
    head = RequestWriter(TritonUrl.from_url("http://bücher.example")).head(b"GET", "v2", {}, 0)
    assert b"\r\nHost: xn--bcher-kva.example:8000\r\n" in head


def feed_often(reader, piece):
    for _ in range(2 * MOST_HEAD_BYTES // len(piece)):
        fed(reader, piece)


def response(body, *headers, length=None):
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % (len(body) if length is None else length), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(response(b"", length=101), id="it says that it is too long"),
        pytest.param(response(b"a" * 101), id="it is too long"),
        pytest.param(response(gzip.compress(b"a" * 101), b"Content-Encoding: gzip"), id="decompressed"),
        pytest.param(response(zlib.compress(b"a" * 10**6), b"Content-Encoding: deflate"), id="far too long"),
    ],
)
def test_a_response_beyond_the_limit_is_an_error(data):
    with pytest.raises(PyTritonClientInferenceServerError, match="longer than max_response_bytes, 100"):
        fed(ResponseReader(100), data)


@pytest.mark.parametrize(("compress", "name"), [(gzip.compress, b"gzip"), (zlib.compress, b"deflate")])
@pytest.mark.parametrize("limit", [100, None])
def test_a_response_of_just_the_limit_is_taken(compress, name, limit):
    reader = ResponseReader(limit)
    plain, compressed = fed(
        reader, response(b"a" * 100) + response(compress(b"a" * 100), b"Content-Encoding: %b" % name)
    )
    assert plain.body == compressed.body == b"a" * 100


def test_a_body_without_a_length_is_bounded_too():
    reader = ResponseReader(100)
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    fed(reader, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(PyTritonClientInferenceServerError, match="max_response_bytes"):
        feed_often(reader, chunk)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"X: " + b"a" * 1000 + b"\r\n", id="headers"),
        pytest.param(b"a" * 1000, id="one header"),
        pytest.param(b"Content-Length: 0\r\n\r\nHTTP/1.1 100 Continue\r\n", id="interim responses"),
    ],
)
def test_endless_headers_are_an_error(piece):
    reader = ResponseReader()
    fed(reader, b"HTTP/1.1 100 Continue\r\nX: y")
    if not piece.startswith(b"a"):
        fed(reader, b"\r\n")
    with pytest.raises(PyTritonClientInferenceServerError, match="headers"):
        feed_often(reader, piece)


@pytest.mark.parametrize("encoding", [b"br", b"gzip, gzip", b"\xff"])
def test_an_unknown_encoding_is_an_error(encoding):
    with pytest.raises(PyTritonClientInferenceServerError, match="understands gzip and deflate"):
        fed(ResponseReader(), response(b"x", b"Content-Encoding: " + encoding))


@pytest.mark.parametrize(
    "body",
    [b"x", gzip.compress(b"abc")[:-1], gzip.compress(b"abc") * 2, zlib.compress(b"abc")],
    ids=["other data", "cut short", "two streams", "deflate"],
)
def test_a_body_that_is_not_compressed_as_it_says_is_an_error(body):
    with pytest.raises(PyTritonClientInferenceServerError, match="cannot be decompressed by gzip"):
        fed(ResponseReader(), response(body, b"Content-Encoding: gzip"))


def test_a_protocol_that_nobody_asked_for_is_an_error():
    with pytest.raises(ConnectionError, match="does not speak HTTP"):
        fed(ResponseReader(), b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc")


@given(data=st.binary(max_size=200), begin=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", response(b"a")]))
def test_any_bytes_are_responses_or_an_error(data, begin):
    with contextlib.suppress(ConnectionError, PyTritonClientInferenceServerError):
        fed(ResponseReader(1000), begin + data)


@given(st.lists(st.tuples(st.integers(0, 60_000), st.booleans(), st.integers(1, 70_000)), min_size=1, max_size=4))
def test_responses_are_the_same_in_whatever_pieces_they_come(responses):
    reader, got = ResponseReader(), []
    for length, keeps, piece in responses:
        body = (bytes(range(256)) * (length // 256 + 1))[:length]
        headers = [] if keeps else [b"Connection: close"]
        data = response(body, *headers)
        for begin in range(0, len(data), piece):
            assert len(got) == 0
            got += fed(reader, data[begin : begin + piece])
        assert (bytes(got.pop().body), reader.keeps_alive) == (body, keeps)
        reader = reader if reader.keeps_alive else ResponseReader()


def test_the_rest_of_a_body_is_received_where_it_stays_and_what_follows_is_left():
    reader = ResponseReader()
    assert fed(reader, response(b"ab", length=1_000_000)) == []
    place = reader.buffer()
    assert len(place) == 999_998
    place[:] = b"c" * 999_998
    (got,) = reader.received(999_998)
    assert bytes(got.body) == b"ab" + b"c" * 999_998
    assert np.shares_memory(np.frombuffer(got.body, np.uint8), np.frombuffer(place, np.uint8))
    assert got.body.readonly
    assert len(reader.buffer()) < 100_000


def test_a_response_beyond_all_memory_is_an_error():
    with pytest.raises(PyTritonClientInferenceServerError, match="does not fit into this process's memory"):
        fed(ResponseReader(), response(b"a", length=2**62))
