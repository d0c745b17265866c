"""Programs that have closed their standard input and outputs, as some daemons do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

PROGRAM = """
import os, sys
answer, http_port, grpc_port, metrics_port, port = map(int, sys.argv[1:])
os.closerange(0, 3)

import httpx
from pytriton.rest import RestConfig
from pytriton.triton import Triton, TritonConfig

def shout(text: str) -> str:
    return text.upper()

config = TritonConfig(http_port=http_port, grpc_port=grpc_port, metrics_port=metrics_port, http_address="127.0.0.1")
with Triton(config=config, rest=RestConfig(port=port)) as triton:
    triton.bind(shout)
    triton.run()
    url = f"http://127.0.0.1:{port}/predict/shout"
    os.write(answer, httpx.post(url, json={"text": "a"}, timeout=20, trust_env=False).content)
"""


def test_a_program_without_standard_files_serves_at_all_ports():
    reader, writer = os.pipe()
    with reserved_ports(4) as ports, open(reader) as answer:
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(writer), *map(str, ports)],
            cwd=Path(__file__).parents[2],
            pass_fds=[writer],
            timeout=DEADLINE_S,
            check=True,
        )
        os.close(writer)
        assert answer.read() == '{"result":"A"}'
