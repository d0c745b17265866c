"""Where a server listens."""

import pytest

from pytriton.client.auth import TritonUrl
from pytriton.client.exceptions import PyTritonClientInvalidUrlError


@pytest.mark.parametrize(
    ("url", "with_scheme"),
    [
        ("localhost", "http://localhost:8000"),
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("localhost:9000", "http://localhost:9000"),
        ("http://h", "http://h:8000"),
        ("grpc://h", "grpc://h:8001"),
        ("GRPC://H:9", "grpc://h:9"),
        ("my_host-1.example.com:65535", "http://my_host-1.example.com:65535"),
        ("http://grpc:8001", "http://grpc:8001"),
    ],
)
def test_scheme_and_port_have_defaults(url, with_scheme):
    assert TritonUrl.from_url(url).with_scheme == with_scheme


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h:80/base", "/base"),
        ("h/x/y/", "/x/y"),
        ("h/", ""),
        ("grpc://h/base", ""),
    ],
)
def test_base_path_is_kept_for_http_alone(url, path):
    parsed = TritonUrl.from_url(url)
    assert parsed.path == path
    assert parsed.without_scheme.endswith(f"{parsed.port}{path}")


@pytest.mark.parametrize("url", ["[::1]", "http://[::1]:8000", "[::1]:8000"])
def test_ipv6_address_keeps_its_brackets(url):
    parsed = TritonUrl.from_url(url)
    assert (parsed.hostname, parsed.without_scheme) == ("[::1]", "[::1]:8000")


@pytest.mark.parametrize("url", ["localhost", "grpc://[fe80::1]:7", "http://h:1/base"])
def test_parsing_its_own_text_gives_the_same_url(url):
    parsed = TritonUrl.from_url(url)
    assert TritonUrl.from_url(parsed.with_scheme) == parsed


@pytest.mark.parametrize(
    "url",
    [
        "https://h",
        "ftp://h",
        "http://h:port",
        "h:99999",
        "h:0",
        "h:-1",
        "h:",
        "",
        "//h",
        "http://",
        "http://:8000",
        "::1",
        "[::1",
        "a b",
        "user@h",
        "http://h?x=1",
        "http://h#x",
        b"localhost",
        None,
        8000,
    ],
)
def test_anything_else_is_refused(url):
    with pytest.raises(PyTritonClientInvalidUrlError, match=r"url"):
        TritonUrl.from_url(url)


@pytest.mark.parametrize("url", ["grpc:8001", "http:8000", "GRPC:1"])
def test_scheme_without_slashes_is_not_taken_for_a_host(url):
    with pytest.raises(PyTritonClientInvalidUrlError, match=rf"'http://{url}'"):
        TritonUrl.from_url(url)


@pytest.mark.parametrize("url", ["https://host", "grpcs://host:1"])
def test_schemes_of_encrypted_connections_are_refused_with_the_way_to_encrypt(url):
    with pytest.raises(PyTritonClientInvalidUrlError, match=r"pass tls=Tls\(\)"):
        TritonUrl.from_url(url)
