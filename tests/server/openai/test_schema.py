"""The description of OpenAI's routes, and generated requests to them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from pytriton.llm import ChatModel, CompletionModel, EmbeddingModel
from pytriton.rest import RestConfig
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.openai.models import embed_tokens, told
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

CASES = 40
ROUTES = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models"]


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture(scope="module")
def with_app() -> Iterator[tuple[Triton, str]]:
    with (
        reserved_ports(1) as (port,),
        local_config() as config,
        Triton(config=config, rest=RestConfig(port=port, address=LOCALHOST)) as triton,
    ):
        triton.bind(shout)
        yield triton, f"http://{LOCALHOST}:{port}"


def described(url: str) -> dict[str, object]:
    paths: dict[str, object] = httpx.get(f"{url}/openapi.json", trust_env=False, timeout=DEADLINE_S).json()["paths"]
    return paths


def test_the_routes_are_described_where_models_serve_them(with_app):
    triton, url = with_app
    assert not any(path.startswith("/v1/c") or path.startswith("/v1/e") for path in described(url))
    assert "/v1/models" not in described(url)
    triton.bind("told", ChatModel(told))
    assert {"/v1/chat/completions", "/v1/models"} <= described(url).keys()
    assert "/v1/embeddings" not in described(url)
    triton.bind("continued", CompletionModel(lambda request: f"{request.prompt}"))
    triton.bind("embed", EmbeddingModel(embed_tokens, takes_tokens=True))
    assert {*ROUTES} <= described(url).keys()


@pytest.mark.timeout(600)
def test_generated_requests_get_the_answers_that_are_described(with_app, tmp_path):
    triton, url = with_app
    triton.bind("told", ChatModel(told), replace=True)
    triton.bind("continued", CompletionModel(lambda request: f"{request.prompt}"), replace=True)
    triton.bind("embed", EmbeddingModel(embed_tokens, takes_tokens=True), replace=True)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--no-color"]
    command += ["--include-tag", "OpenAI", "--max-examples", str(CASES), "--checks", "all"]
    command += ["--exclude-checks", "positive_data_acceptance"]  # echo with tokens, and best_of, are refused
    command += ["--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all", "--seed", "21"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "NO_PROXY": "*"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    tested = re.search(r"(\d+) generated", done.stdout)
    assert tested is not None, done.stdout
    assert int(tested[1]) > CASES
