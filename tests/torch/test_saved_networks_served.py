"""Networks of PyTorch and of Hugging Face, served and called over JSON and gRPC: `make test-torch` runs this."""

from __future__ import annotations

import base64
import io
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.model_config import ModelConfig
from pytriton.rest import RestConfig
from pytriton.saved import load
from pytriton.triton import Triton
from pytriton.workers import Processes
from tests.server.command import Command, run
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S
from tests.server.traffic import batches_of
from tests.unit.saved.files import iris

for module in ("PIL", "torch", "transformers"):
    pytest.importorskip(module, reason=f"{module} is not installed: make test-torch installs it")
from PIL import Image  # noqa: E402

from tests.torch.folders import made, pipeline_of, sentences  # noqa: E402
from tests.torch.networks import NETWORKS, of_export  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

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


def post(app, path, body):
    response = httpx.post(f"{app[1]}/{path}", json=body, timeout=DEADLINE_S, trust_env=False)
    assert response.status_code == 200, response.text
    return response.json()


def at_once(app, name, rows):
    """The results of requests that are sent at the same time."""

    def ask(values):
        with ModelClient(app[2], name) as client:
            return client.call(**values)

    with ThreadPoolExecutor(len(rows)) as pool:
        return [*pool.map(ask, rows)]


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_answers_json_and_grpc_in_merged_batches(kind, app, tmp_path):
    """The batcher waits for exactly so many rows, so that answers come at all means that they were merged."""
    saved, rows = NETWORKS[kind](tmp_path), iris()[0][:MERGED]
    app[0].bind(
        kind, load(saved.path, **saved.options), config=ModelConfig(max_batch_size=16, batcher=batches_of(MERGED))
    )
    expected = saved.answer(rows)
    instances = {"instances": [saved.values(row) for row in rows]}
    found = [*post(app, f"predict/{kind}", instances)["predictions"], *at_once(app, kind, instances["instances"])]
    for number, each in enumerate(found):
        np.testing.assert_allclose(each["scores"], expected["scores"][number % MERGED], rtol=1e-6)
        assert each["best"] == expected["best"][number % MERGED]


def test_worker_processes_load_a_network_themselves(app, tmp_path):
    saved = of_export(tmp_path)
    path, row = str(saved.path), iris()[0][9]
    app[0].bind("workers", Processes(lambda: load(path, trust=True), count=2))
    assert post(app, "predict/workers", saved.values(row))["best"] == saved.answer(row[np.newaxis])["best"][0]


def test_texts_of_different_lengths_and_labels_are_merged(app, tmp_path):
    path = made("text-classification", tmp_path / "texts")
    pipe, texts = pipeline_of("text-classification", path), ["good", "this is a bad day", "one two", "a"]
    app[0].bind("texts", load(path), config=ModelConfig(max_batch_size=16, batcher=batches_of(len(texts))))
    for text, found in zip(texts, at_once(app, "texts", [{"text": text} for text in texts]), strict=True):
        assert found["label"] == pipe(text)[0]["label"]
        assert found["score"] == pytest.approx(pipe(text)[0]["score"], rel=1e-4)
    path = made("zero-shot-classification", tmp_path / "choices")
    model = load(path, method="zero-shot-classification")
    app[0].bind("choices", model, config=ModelConfig(max_batch_size=16))
    rows = [{"text": "a good day", "labels": ["good", "bad"]}, {"text": "a", "labels": ["one", "two", "day"]}]
    for row, found in zip(rows, at_once(app, "choices", rows), strict=True):
        assert found == pytest.approx(model(**row), rel=1e-4)
        assert post(app, "predict/choices", row)["result"] == pytest.approx(found, rel=1e-4)


def test_an_image_is_classified_as_a_file_and_in_json(app, tmp_path):
    path, file = made("image-classification", tmp_path), io.BytesIO()
    image = Image.new("RGB", (40, 50), (200, 0, 60))
    image.save(file, "PNG")
    (expected,) = pipeline_of("image-classification", path)(image, top_k=1)
    app[0].bind("images", load(path), config=ModelConfig(max_batch_size=16))
    found = post(app, "predict/images", {"image": base64.b64encode(file.getvalue()).decode()})
    assert found["label"] == expected["label"]
    assert found["score"] == pytest.approx(expected["score"], rel=1e-4)
    headers = {"content-type": "image/png"}
    answer = httpx.post(f"{app[1]}/predict/images", content=file.getvalue(), headers=headers, trust_env=False)
    assert answer.json() == found


def test_sentences_are_embedded_by_openais_api(app, tmp_path):
    network = sentences(tmp_path)
    app[0].bind("sentences", load(tmp_path), config=ModelConfig(max_batch_size=16))
    answer = post(app, "v1/embeddings", {"model": "sentences", "input": ["a good day", "bad"]})
    found = [each["embedding"] for each in answer["data"]]
    np.testing.assert_allclose(found, network.encode(["a good day", "bad"]), rtol=1e-4, atol=1e-5)
    assert answer["usage"] == {"prompt_tokens": 8, "total_tokens": 8}


def test_the_commands_show_and_serve_a_network(tmp_path):
    saved, program = of_export(tmp_path), tmp_path / "server.py"
    assert run("inspect", str(saved.path)).returncode == 2
    done = run("inspect", str(saved.path), "--trust", f"--write={program}")
    assert done.returncode == 0, done.stderr
    assert "input x: FP32 (4)" in done.stdout
    assert 'load("' in program.read_text()
    assert "trust=True" in program.read_text()
    done = run("inspect", str(made("text-classification", tmp_path / "texts")), "--method=text-classification")
    assert done.returncode == 0, done.stderr
    assert "method text-classification; --method may be zero-shot-classification" in done.stdout
    assert "output score: FP64" in done.stdout
    with reserved_ports(4) as (http, grpc, metrics, rest):
        ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", f"--rest-port={rest}"]
        command = Command(tmp_path / "home", "serve", str(saved.path), "--trust", *ports, "--address=127.0.0.1")
        try:
            command.wait_for("Press CTRL+C")
            row = iris()[0][3]
            found = post((None, f"http://127.0.0.1:{rest}"), "predict/program", saved.values(row))
            assert found["best"] == saved.answer(row[np.newaxis])["best"][0]
            assert command.end() == 0
        finally:
            command.kill()
