"""Saved models of each format, served and called over JSON and gRPC."""

from __future__ import annotations

import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInputError
from pytriton.model_config import ModelConfig
from pytriton.rest import RestConfig
from pytriton.saved import load
from pytriton.triton import Triton
from pytriton.workers import Processes
from tests.server.command import Command, run
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.traffic import batches_of
from tests.unit.saved.archives import archive
from tests.unit.saved.files import FORMATS, iris, of_onnx, of_skops, write_onnx

pytestmark = [pytest.mark.either_proxy, pytest.mark.filterwarnings("default")]

MERGED = 8


@pytest.fixture(scope="module")
def app():
    """A server with an app: ``(triton, url of the app, url of gRPC)``."""
    with (
        local_config() as config,
        reserved_ports(1) as (port,),
        Triton(config=config, rest=RestConfig(port=port, address=LOCALHOST)) as triton,
    ):
        yield triton, f"http://{LOCALHOST}:{port}", f"grpc://{LOCALHOST}:{config.grpc_port}"


@pytest.fixture(params=FORMATS, scope="module")
def served(request, app, tmp_path_factory):
    """A model of each format: ``(saved, name)``."""
    saved = FORMATS[request.param](tmp_path_factory.mktemp("saved"))
    app[0].bind(request.param, load(saved.path, **saved.options), config=ModelConfig(max_batch_size=64))
    return saved, request.param


def plain(answer, row):
    """What JSON has of a row of an answer."""
    values = {name: column[row].tolist() for name, column in answer.items()}
    return values["result"] if [*values] == ["result"] else values


def assert_same(found, expected):
    """Texts are equal, and numbers within what JSON keeps of float32."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value)
    elif isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def predict(app, model, body):
    response = httpx.post(f"{app[1]}/predict/{model}", json=body, timeout=DEADLINE_S, trust_env=False)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_row_of_json_is_answered_as_the_library_does(app, served):
    saved, name = served
    rows, _ = iris()
    expected = plain(saved.answer(rows[60:61]), 0)
    found = predict(app, name, saved.values(rows[60]))
    assert_same(found, expected if isinstance(expected, dict) else {"result": expected})


def test_many_rows_of_json_are_answered_in_their_order(app, served):
    saved, name = served
    rows, _ = iris()
    answer = saved.answer(rows)
    found = predict(app, name, {"instances": [saved.values(row) for row in rows]})["predictions"]
    assert len(found) == len(rows)
    for number, each in enumerate(found):
        expected = plain(answer, number)
        assert_same(each, expected if isinstance(expected, dict) else {"result": expected})


def test_a_client_of_grpc_gets_values(app, served):
    saved, name = served
    rows, _ = iris()
    with ModelClient(app[2], name) as client:
        found = client.call(**saved.values(rows[120]))
    expected = plain(saved.answer(rows[120:121]), 0)
    assert_same(json.loads(json.dumps(found, default=np.ndarray.tolist)), expected)


def test_values_that_do_not_fit_are_told(app, served):
    saved, name = served
    values = saved.values(iris()[0][0])
    values[next(iter(values))] = "none"
    with ModelClient(app[2], name) as client, pytest.raises(PyTritonClientInputError, match="expected"):
        client.call(**values)
    response = httpx.post(f"{app[1]}/predict/{name}", json=values, timeout=DEADLINE_S, trust_env=False)
    assert response.status_code in (400, 422)
    assert "expected" in response.json()["error"]["message"]


def test_the_document_of_the_app_has_an_example(app, served):
    _, name = served
    document = httpx.get(f"{app[1]}/openapi.json", timeout=DEADLINE_S, trust_env=False).json()
    assert f"/predict/{name}" in document["paths"]


def test_requests_are_merged_into_batches(app, served):
    """The batcher waits for exactly so many rows, so that answers come at all means that they were merged."""
    saved, name = served
    rows, _ = iris()
    model, merged = load(saved.path, **saved.options), f"{name}_merged"
    app[0].bind(merged, model, config=ModelConfig(max_batch_size=MERGED, batcher=batches_of(MERGED)))
    answer = saved.answer(rows[:MERGED])

    def ask(number):
        with ModelClient(app[2], merged) as client:
            return client.call(**saved.values(rows[number]))

    with ThreadPoolExecutor(MERGED) as pool:
        found = [*pool.map(ask, range(MERGED))]
    for number, each in enumerate(found):
        assert_same(json.loads(json.dumps(each, default=np.ndarray.tolist)), plain(answer, number))
    app[0].unbind(merged)


def test_null_is_a_missing_value_and_a_table_of_pandas_is_a_batch(app, tmp_path):
    saved = FORMATS["xgboost"](tmp_path)
    app[0].bind("table", load(saved.path), config=ModelConfig(max_batch_size=64))
    rows = iris()[0][:3].copy()
    rows[1, 2] = np.nan
    expected = saved.answer(rows)["result"]
    columns, data = (
        [*saved.values(rows[0])],
        [[None if each != each else each for each in row] for row in rows.tolist()],
    )
    records = [dict(zip(columns, row, strict=True)) for row in data]
    assert_same(predict(app, "table", records[1])["result"], expected[1].tolist())
    assert_same([each["result"] for each in predict(app, "table", {"instances": records})["predictions"]], expected)
    split = {"columns": columns, "data": data}
    for body in (split, {"dataframe_split": {**split, "index": [0, 1, 2]}}, {"dataframe_records": records}):
        assert_same(predict(app, "table", body)["predictions"], expected)
    document = httpx.get(f"{app[1]}/openapi.json", timeout=DEADLINE_S, trust_env=False).json()
    told = document["components"]["schemas"]["table_input"]["properties"][columns[0]]
    assert told == {"anyOf": [{"type": "number"}, {"type": "null"}]}


@pytest.fixture(scope="module")
def doubled(app, tmp_path_factory):
    """A model of that name."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    path = tmp_path_factory.mktemp("doubled") / "doubled.onnx"
    write_onnx(path, "float[n, 2] x", "float[n, 2] y", "y = Add(x, x)")
    app[0].bind("doubled", load(path))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"dataframe_split": {"columns": ["x"], "data": [[1, 2]]}},
            r'["dataframe_split", "data", 0]: expected a list of 1',
        ),
        ({"dataframe_split": [1]}, '["dataframe_split"]: expected an object with columns and data'),
        ({"dataframe_records": []}, '["dataframe_records"]: expected a list of objects, with one or more'),
        ({"dataframe_records": [{"x": [1, 2]}, {"x": "a"}]}, '["dataframe_records", 1, "x"]: expected'),
        ({"columns": ["x"], "data": 7}, '["data"]: expected a list of lists'),
    ],
)
def test_what_is_no_table_is_told(app, doubled, body, message):
    response = httpx.post(f"{app[1]}/predict/doubled", json=body, timeout=DEADLINE_S, trust_env=False)
    assert response.status_code == 422, response.text
    assert message in response.json()["error"]["message"]


def test_a_value_that_the_model_refuses_is_an_error_of_its_client(app, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    joblib.dump(preprocessing.OrdinalEncoder().fit(pandas.DataFrame({"city": ["Rome", "Oslo"]})), tmp_path / "m.joblib")
    app[0].bind("cities", load(tmp_path / "m.joblib", trust=True), config=ModelConfig(max_batch_size=8))
    assert predict(app, "cities", {"city": "Rome"}) == {"result": 1.0}
    response = httpx.post(f"{app[1]}/predict/cities", json={"city": "Paris"}, timeout=DEADLINE_S, trust_env=False)
    assert response.status_code == 422, response.text
    assert "Found unknown categories ['Paris']" in response.json()["error"]["message"]


def test_the_handler_of_an_archive_of_torchserve_answers(app, tmp_path):
    path = archive(tmp_path / "count.mar")
    app[0].bind("count", load(path, trust=True), config=ModelConfig(max_batch_size=8))
    assert predict(app, "count", {"body": "abc"}) == {"result": {"length": 3, "unit": "letters"}}
    found = predict(app, "count", {"instances": [{"body": "a"}, {"body": "ab"}]})["predictions"]
    assert [each["result"]["length"] for each in found] == [1, 2]
    with ModelClient(app[2], "count") as client:
        assert client.call(body="abcd") == {"length": 4, "unit": "letters"}
    app[0].bind("picture", load(path, trust=True, inputs={"data": "bytes"}), config=ModelConfig(max_batch_size=8))
    headers = {"content-type": "image/png"}
    response = httpx.post(f"{app[1]}/predict/picture", content=b"12345", headers=headers, trust_env=False)
    assert response.json() == {"result": {"length": 5, "unit": "letters"}}


def test_a_model_without_batch_axis_is_served(app, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write_onnx(tmp_path / "twice.onnx", "float[1, 4] x", "float[1, 4] y", "y = Add(x, x)")
    app[0].bind("twice", load(tmp_path / "twice.onnx"))
    assert predict(app, "twice", {"x": [[1, 2, 3, 4]]}) == {"y": [[2, 4, 6, 8]]}


def test_worker_processes_load_the_file_themselves(app, tmp_path):
    saved = of_onnx(tmp_path)
    path = str(saved.path)
    app[0].bind("workers", Processes(lambda: load(path), count=2), config=ModelConfig(max_batch_size=16))
    rows, _ = iris()
    assert_same(predict(app, "workers", saved.values(rows[5])), plain(saved.answer(rows[5:6]), 0))
    assert {status.kind for status in app[0].worker_status("workers")} == {"process"}


# The commands.


@pytest.fixture
def serve(tmp_path):
    """``serve(*arguments)``: the command, the URL of its app, and that of HTTP."""
    commands = []
    with reserved_ports(4) as (http, grpc, metrics, rest):

        def start(*arguments):
            ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", f"--rest-port={rest}"]
            commands.append(Command(tmp_path / "home", "serve", *arguments, *ports, "--address=127.0.0.1"))
            return commands[-1], f"http://127.0.0.1:{rest}", f"http://127.0.0.1:{http}"

        yield start
        for command in commands:
            command.kill()


def test_one_command_serves_several_files(serve, tmp_path):
    onnx, rows = of_onnx(tmp_path), iris()[0]
    write_onnx(tmp_path / "twice.onnx", "float[n, 2] x", "float[n, 2] y", "y = Add(x, x)")
    command, url, http = serve(f"sum={tmp_path / 'twice.onnx'}", str(onnx.path))
    command.wait_for("Press CTRL+C")
    with ModelClient(http, "sum", init_timeout_s=DEADLINE_S) as client:
        assert client.call(x=[1, 2])["y"].tolist() == [2, 4]
        assert client.model_config.max_batch_size == 4096
    assert_same(predict((None, url), "layer", onnx.values(rows[3])), plain(onnx.answer(rows[3:4]), 0))
    assert predict((None, url), "sum", {"x": [3, 4]}) == {"y": [6, 8]}
    assert httpx.get(f"{url}/docs", timeout=DEADLINE_S, trust_env=False).status_code == 200
    family = command.family()
    assert command.end() == 0
    command.assert_nothing_left(family)


def test_the_command_takes_a_thousand_rows_of_a_table_at_once(serve, tmp_path):
    joblib, rows = FORMATS["joblib"](tmp_path), np.resize(iris()[0], (1000, 4))
    command, url, http = serve(f"iris={joblib.path}", "--trust")
    command.wait_for("Press CTRL+C")
    expected = joblib.answer(rows)["result"].tolist()
    with ModelClient(http, "iris") as client:
        assert [label.decode() for label in client.infer_batch(rows)["result"][:, 0]] == expected
    found = predict((None, url), "iris", {"instances": [joblib.values(row) for row in rows]})
    assert [each["result"] for each in found["predictions"]] == expected
    assert command.end() == 0


def test_the_command_takes_options_of_a_file_and_workers(serve, tmp_path):
    write_onnx(tmp_path / "twice.onnx", "float[n, w] x", "float[n, w] y", "y = Add(x, x)")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = "--input=x:float32:2", "--max-batch-size=9", "--workers=2", "--tune"
    command, url, http = serve(str(tmp_path / "twice.onnx"), *options)
    command.wait_for("Press CTRL+C")
    (measured,) = re.findall(r"(\d) rows in one call, as measured; remembered in ", command.output)
    assert predict((None, url), "twice", {"x": [3, 4]}) == {"y": [6, 8]}
    with ModelClient(http, "twice") as client:
        assert client.model_config.max_batch_size == int(measured)
        assert client.model_config.inputs[0].shape == (2,)
    wait_for(lambda: "; threads for a call: " in command.output, "the workers to say their threads")
    assert command.end() == 0


def test_what_cannot_be_served_is_told_in_one_line(serve, tmp_path):
    joblib = FORMATS["joblib"](tmp_path)
    done = run("serve", str(joblib.path))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"pytriton: {joblib.path} has the format pickle, which can run any code")
    path = of_onnx(tmp_path).path  # the server is launched already when onnxruntime reads it
    path.write_bytes(path.read_bytes().replace(b"MatMul", b"MatNul"))
    for options in ([], ["--workers=2"]):
        command, *_ = serve(str(path), *options)
        assert command.wait() == 2
        assert command.output.startswith(f"pytriton: {path} cannot be read as ONNX (")
        assert command.output.count("\n") == 1
        command.assert_nothing_left([])


def test_the_program_that_inspect_writes_serves_the_file(tmp_path):
    skops = of_skops(tmp_path)
    program = tmp_path / "programs" / "server.py"
    program.parent.mkdir()
    path = os.path.relpath(skops.path)
    done = run("inspect", f"species={path}", "--method=predict_proba", f"--write={program}")
    assert done.returncode == 0, done.stderr
    assert "input petal width: FP64" in done.stdout
    again = run("inspect", str(skops.path), f"--write={program}")
    assert again.returncode == 2
    assert "exists" in again.stderr
    assert f'load(Path(__file__).parent / "../{skops.path.name}"' in program.read_text()
    namespace = {"__name__": "server", "__file__": str(program)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTRITON_HOME", str(tmp_path / "home"))
        exec(compile(program.read_text(), str(program), "exec"), namespace)
    rows, _ = iris()
    assert_same(namespace["model"](**skops.values(rows[9])), plain(skops.answer(rows[9:10]), 0))
    namespace["triton"].stop()
    assert program.name in done.stdout or sys.executable in done.stdout
