"""The description of the app's routes, checked by programs that read such descriptions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.server.processes import DEADLINE_S
from tests.server.rest.kinds import KINDS, bind_kinds
from tests.server.rest.ways import RunningApp, app_of

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

CASES = int(os.environ.get("PYTRITON_SCHEMATHESIS_CASES", "15"))  # for each operation, beside those that limits suggest
LIMIT_S = 240 + 2 * CASES
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CALLS = """
from app.api.scalars import predict_scalars
from app.client import Client
from app.models import Error, ScalarsInput, ScalarsOutput

with Client(base_url={url!r}) as client:
    answer = predict_scalars.sync(client=client, body=ScalarsInput(text="a b", number=2.0, count=3))
    assert isinstance(answer, ScalarsOutput), answer
    print(answer.score, answer.words)
    refused = predict_scalars.sync_detailed(client=client, body=ScalarsInput(text="a", count=99))
    assert isinstance(refused.parsed, Error), refused
    print(refused.status_code.value, refused.parsed.error.details[0].path)
"""


@pytest.fixture(scope="module")
def process() -> Iterator[RunningApp]:
    """An app in its own process with a model of each kind."""
    with app_of("own process") as app:
        bind_kinds(app.triton)
        yield app


def url_of(app: RunningApp) -> str:
    return str(app.client.base_url).rstrip("/")


def test_models_are_described_while_they_are_bound(app):
    def shout(text: str) -> str:
        return text.upper()

    assert "/predict/shout" not in app.get("/openapi.json").json()["paths"]
    app.triton.bind(shout)
    document = app.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert "/predict/shout" in document["paths"]
    assert document["servers"] == [{"url": "/models" if app.way == "mounted" else "/"}]
    app.triton.unbind("shout")
    assert "/predict/shout" not in app.get("/openapi.json").json()["paths"]


def test_the_page_has_all_that_it_needs(app):
    page = app.get("/docs")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    links = re.findall(r'(?:src|href|data-url)="([^"]+)"', page.text)
    own = [link for link in links if not link.startswith("data:")]
    assert len(own) == 6
    for link in own:
        path = link.removeprefix("/models") if app.way == "mounted" else link
        assert path.startswith("/")
        assert app.get(path).status_code == 200
    assert app.get("/docs/other.js").status_code == 404


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("kind", KINDS)
def test_generated_requests_get_the_answers_that_are_described(process, tmp_path, kind):
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url_of(process)}/openapi.json", "--no-color"]
    command += ["--include-path-regex", f"/{kind}(:predict)?$", "--max-examples", str(CASES), "--checks", "all"]
    if kind == "picture":  # a schema cannot say which bytes are an image
        command += ["--exclude-checks", "positive_data_acceptance"]
    if kind == "data":  # a number that is sent as a file is bytes like any other
        command += ["--exclude-checks", "negative_data_rejection"]
    command += ["--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all", "--seed", "21"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "NO_PROXY": "*"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    tested = re.search(r"(\d+) generated", done.stdout)
    assert tested is not None, done.stdout
    assert int(tested[1]) > CASES


def test_a_generated_client_calls_the_models(process, tmp_path):
    (tmp_path / "openapi.json").write_text(process.get("/openapi.json").text)
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"]
    command += ["--output-path", "app", "--fail-on-warning", "--config", "config.yaml"]
    (tmp_path / "config.yaml").write_text("post_hooks: []")  # they would format it
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert made.returncode == 0, made.stdout + made.stderr
    program = tmp_path / "program.py"
    program.write_text(CALLS.format(url=url_of(process)))
    ran = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "6.0 ['left', 'False', 'a', 'b']\n422 ['count']\n"


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_the_page_shows_the_models_in_a_browser(process, tmp_path):
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--virtual-time-budget=20000", "--dump-dom", f"{url_of(process)}/docs"]
    page = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S).stdout
    assert "/predict/scalars" in page
    assert "How a text sounds" in page or "Call scalars" in page
