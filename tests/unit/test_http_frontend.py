"""Whether the native HTTP front end is used, and what it is told."""

from __future__ import annotations

import os
import stat

import pytest

from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.security import TritonSecurityConfig
from pytriton.server.access import Restrictions
from pytriton.server.http_frontend import FrontendDrain, HttpFrontend, uses_native_frontend
from pytriton.server.installation import HTTP_FRONTEND, PRELOADED

OPEN = TritonSecurityConfig(restricted_endpoints=[])


@pytest.fixture
def library(tmp_path):
    """Of a package in which everything was compiled."""
    for name in ("proxy.so", HTTP_FRONTEND, PRELOADED):
        (tmp_path / name).touch()
    return tmp_path / "proxy.so"


def frontend_of(workspace, config, security=OPEN, **options):
    workspace.mkdir(parents=True, exist_ok=True)
    return HttpFrontend(config, Restrictions.merge(config, security), workspace, **options)


@pytest.mark.parametrize("chosen", ["native", None])
def test_it_is_used_unless_the_other_one_is_chosen(library, chosen):
    assert uses_native_frontend(TritonConfig(http_frontend=chosen, http_use_ssl=True), library)
    assert not uses_native_frontend(TritonConfig(http_frontend="triton"), library)
    assert not uses_native_frontend(TritonConfig(http_frontend=chosen, allow_http=False), library)


@pytest.mark.parametrize("name", [HTTP_FRONTEND, PRELOADED])
def test_where_it_was_not_compiled_it_is_an_error_to_ask_for_it_and_no_default(library, name):
    library.with_name(name).unlink()
    assert not uses_native_frontend(TritonConfig(), library)
    with pytest.raises(PyTritonValidationError, match=f"http_frontend='native' cannot be used: .*{name} is missing"):
        uses_native_frontend(TritonConfig(http_frontend="native"), library)
    with pytest.raises(PyTritonValidationError, match=r"http_max_nesting: .* cannot be used, because .* is missing"):
        uses_native_frontend(TritonConfig(http_max_nesting=7), library)


@pytest.mark.parametrize("field", [{"http_access_log": "stderr"}, {"http_address": "unix:/x"}])
def test_an_option_that_the_other_front_end_lacks_is_an_error(library, field):
    with pytest.raises(PyTritonValidationError, match="set http_frontend='native'"):
        uses_native_frontend(TritonConfig(http_frontend="triton", **field), library)


def test_the_options_are_written_for_this_user_alone_and_anew_for_each_start(tmp_path):
    frontend = frontend_of(tmp_path / "w", TritonConfig(), TritonSecurityConfig("secret", ["trace"]))
    for _ in range(2):
        path = frontend.prepare()["PYTRITON_HTTP"]
        assert path == str(tmp_path / "w" / "http" / "frontend.json")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert frontend.options()["access"] == [
        {"endpoints": ["trace"], "header": "triton-access-token", "value": "secret"}
    ]


def test_certificates_are_told_only_if_they_are_used(tmp_path):
    files = {"http_server_cert": "/c", "http_server_key": "/k", "http_root_cert": "/r"}
    told = [
        {name: value for name, value in frontend_of(tmp_path / str(number), config).options().items() if "tls" in name}
        for number, config in enumerate(
            [
                TritonConfig(**files),
                TritonConfig(http_use_ssl=True, **files),
                TritonConfig(http_use_ssl_mutual=True, **files),
            ]
        )
    ]
    assert [each.get("tls_certificate") for each in told] == [None, "/c", "/c"]
    assert [each.get("tls_authorities") for each in told] == [None, None, "/r"]


def test_a_drain_of_a_server_that_has_ended_is_done(tmp_path):
    drain = FrontendDrain(str(tmp_path / "control.sock"))
    assert drain.wait()
    drain.after_fork()
