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


@pytest.mark.parametrize(
    ("url", "socket", "path", "with_scheme"),
    [
        ("http+unix:///run/x.sock", "/run/x.sock", "", "http+unix:///run/x.sock"),
        ("http+unix://%2Frun%2Fx.sock", "/run/x.sock", "", "http+unix:///run/x.sock"),
        ("http+unix://%2Frun%2Fx.sock/", "/run/x.sock", "", "http+unix:///run/x.sock"),
        ("http+unix://%2Frun%2FX.sock/base/", "/run/X.sock", "/base", "http+unix://%2Frun%2FX.sock/base"),
        ("http+unix:///run/a%20b%25", "/run/a b%", "", "http+unix:///run/a%20b%25"),
        ("HTTP+UNIX:///Run/x", "/Run/x", "", "http+unix:///Run/x"),
    ],
)
def test_a_socket_is_named_by_a_path_or_by_a_quoted_host(url, socket, path, with_scheme):
    parsed = TritonUrl.from_url(url)
    assert (parsed.scheme, parsed.socket, parsed.path, parsed.with_scheme) == ("http", socket, path, with_scheme)
    assert TritonUrl.from_url(parsed.with_scheme) == parsed


@pytest.mark.parametrize(
    "url",
    [
        "http+unix://",
        "http+unix://run/x.sock",
        "http+unix://localhost",
        "http+unix:///run/x?y",
        "http+unix:///run/x#y",
        "http+unix:///run/x\n",
        "http+unix:///run/%00",
        "http+unix://%2Frun%2Fx/ba se",
        f"http+unix:///{'x' * 107}",
        "grpc+unix:///run/x",
    ],
)
def test_anything_else_is_no_socket(url):
    with pytest.raises(PyTritonClientInvalidUrlError, match=r"url"):
        TritonUrl.from_url(url)


def test_the_longest_path_of_a_socket_is_that_of_the_kernel():
    assert TritonUrl.from_url(f"http+unix:///{'x' * 106}").socket == "/" + "x" * 106
