"""The session of docs/from_nvidia_pytriton.md gives the output that the document shows."""

import doctest
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.either_proxy

PAGE = Path(__file__).parents[2] / "docs" / "from_nvidia_pytriton.md"


@pytest.fixture
def ports(free_config, tmp_path):
    """Those of the server that the session starts, by the port that the document has; the environment says which."""
    before = dict(os.environ)  # the session changes it
    options = {**asdict(free_config), "log_file": tmp_path / "server.log"}  # output would be the example's
    os.environ |= {f"PYTRITON_TRITON_CONFIG_{name.upper()}": str(value) for name, value in options.items() if value}
    yield {"8000": free_config.http_port, "8001": free_config.grpc_port}
    os.environ.clear()
    os.environ |= before


def test_the_page_for_users_of_nvidia_pytriton_shows_what_happens(ports):
    text = re.sub(r"^```.*$", "", PAGE.read_text(), flags=re.MULTILINE)  # or it would be expected output
    session = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    for example in session.examples:
        example.source = re.sub(r"localhost:(800[01])", lambda port: f"127.0.0.1:{ports[port[1]]}", example.source)
    assert len(session.examples) > 15
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    try:
        failed = runner.run(session, out=report.append, clear_globs=False).failed
        assert not failed, "".join(report)
    finally:
        session.globs["triton"].stop()
