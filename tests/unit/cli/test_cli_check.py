"""The report on the environment: what it leaves out, and how it reads the kernel's tables."""

import socket
import sys

import pytest

from pytriton.cli.check import _address, _variables, is_secret


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "x"),
        ("AWS_SECRET_ACCESS", "x"),
        ("ssh_key", "x"),
        ("Password", "x"),
        ("PYTRITON_TRITON_CONFIG_HTTP_RESTRICTED_API", "health:k=v"),
        ("OPTIONS", "--api-key=3"),
        ("OPTIONS", "password=3"),
        ("PIP_INDEX_URL", "https://user:word@host/simple"),
    ],
)
def test_what_looks_like_a_secret_is_one(name, value):
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"), [("PATH", "/usr/bin:/bin"), ("URL", "http://localhost:8000/a@b"), ("N", "")]
)
def test_other_variables_are_none(name, value):
    assert not is_secret(name, value)


def test_the_list_of_variables_says_how_many_are_left_out():
    lines = [*_variables({"B": "2", "A": "1", "TOKEN": "t0p", "X": "my password is t0p"})]
    assert lines == ["A=1", "B=2", "(2 variables that may be secret are left out)"]


@pytest.mark.skipif(sys.byteorder == "big", reason="the kernel's tables are in the machine's order")
def test_addresses_of_the_kernels_tables_are_read():
    assert _address("0100007F", socket.AF_INET) == "127.0.0.1"
    assert _address("00000000000000000000000001000000", socket.AF_INET6) == "::1"
