"""``pytriton build``: the folder has what an image needs. What Docker would run runs in a plain environment here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
import yaml

from tests.server.command import run
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for
from tests.unit.saved.files import iris, of_joblib, of_onnx

pytestmark = [
    pytest.mark.either_proxy,
    pytest.mark.thorough,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(400),  # wheels are large
]

IMAGE = "registry.example.org/iris:7"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return of_onnx(tmp_path_factory.mktemp("saved"))


def build(*arguments):
    """Run the command, which has to succeed."""
    done = run("build", *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done


def refusal(*arguments):
    """The one line that a command says before it ends."""
    done = run("build", *map(str, arguments))
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def contents(folder):
    """Bytes and permissions by path."""
    return {
        each.relative_to(folder): (each.stat().st_mode, each.read_bytes())
        for each in folder.rglob("*")
        if not each.is_dir()
    }


@pytest.fixture(scope="module")
def image(saved, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "image"
    build(f"iris={saved.path}", "--max-batch-size=16", f"--name={IMAGE}", "-o", folder)
    return folder


def test_the_same_inputs_give_the_same_bytes(saved, image, tmp_path):
    arguments = [f"iris={saved.path}", "--max-batch-size=16", f"--name={IMAGE}", "-o"]
    build(*arguments, tmp_path / "other")
    before = contents(image)
    assert contents(tmp_path / "other") == before
    build(*arguments, image)
    assert contents(image) == before
    assert [each.name for each in image.parent.iterdir()] == ["image"]


def test_the_lock_file_has_the_exact_versions_of_this_environment(image):
    lines = (image / "requirements.lock").read_text().splitlines()
    assert lines[0].startswith("# Made by pytriton build, for Python ")
    versions = dict(line.split("==") for line in lines[1:])
    assert {"numpy", "onnxruntime", "starlette", "typer"} <= versions.keys()
    assert not versions.keys() & {"pytest", "pytriton", "scikit-learn"}
    assert all(version(name) == each for name, each in versions.items())


def test_the_list_of_files_is_that_of_sha256sum(image):
    subprocess.run(["sha256sum", "--check", "--quiet", "files.sha256"], cwd=image, check=True)


def instructions(image, kind):
    """The arguments of the instructions of a kind, lines that continue joined."""
    text = (image / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.removeprefix(kind).strip() for line in text.splitlines() if line.startswith(f"{kind} ")]


def test_the_texts_for_docker_and_kubernetes_agree(image):
    assert len(instructions(image, "FROM")) == 2
    assert instructions(image, "USER") == ["10001"]
    python = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim-"
    assert all(each.startswith(python) for each in instructions(image, "FROM"))
    for command in instructions(image, "RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True)
    command = [*json.loads(*instructions(image, "ENTRYPOINT")), *json.loads(*instructions(image, "CMD"))]
    assert command == ["pytriton", "serve", "iris=iris/layer.onnx", "--max-batch-size", "16"]
    (service,) = yaml.safe_load((image / "compose.yaml").read_text())["services"].values()
    assert service["image"] == IMAGE
    overlay = yaml.safe_load((image / "kubernetes" / "kustomization.yaml").read_text())
    assert overlay["images"] == [
        {"name": "registry.example.com/models", "newName": "registry.example.org/iris", "newTag": "7"}
    ]
    (operation,) = yaml.safe_load(overlay["patches"][0]["patch"])
    assert operation["value"] == command[2:]
    base = image / "kubernetes" / "base"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())
    assert all((base / each).is_file() for each in [*listed["resources"], "token"])
    documents = [each for path in base.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert "command" not in container  # the image's own entry point
    assert listed["images"][0]["newName"] == overlay["images"][0]["name"]


@pytest.fixture(scope="module")
def environment(image, tmp_path_factory):
    """What the first stage of the image makes, with the distributions of the lock file taken from this environment."""
    folder = tmp_path_factory.mktemp("stage")

    def moved(command):
        return command.replace("/opt/models", str(folder / "venv")).replace("/build", str(image))

    create, locked, own, _ = instructions(image, "RUN")
    assert "requirements.lock" in locked
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(["sh", "-ec", moved(create).replace("python ", f"{sys.executable} ", 1)], check=True, env=clean)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    others = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "locked.pth").write_text("\n".join(others))
    subprocess.run(["sh", "-ec", moved(own)], check=True, env=clean, cwd=folder)
    shutil.copytree(image / "models", folder / "models")
    return folder, {**clean, "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}


def test_what_the_image_would_run_serves_the_model(image, environment, saved):
    folder, variables = environment
    where = subprocess.run(
        ["python", "-c", "import pytriton; print(pytriton.__file__)"],
        cwd=folder / "models",
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(folder / "venv"))
    command = [*json.loads(*instructions(image, "ENTRYPOINT")), *json.loads(*instructions(image, "CMD"))]
    (health,) = re.findall(r"CMD (\[.*\])", *instructions(image, "HEALTHCHECK"))
    with reserved_ports(4) as (http, grpc, metrics, rest):
        ports = {
            "TRITON_CONFIG_HTTP_PORT": http,
            "TRITON_CONFIG_GRPC_PORT": grpc,
            "TRITON_CONFIG_METRICS_PORT": metrics,
        }
        ports["REST_PORT"] = rest
        variables = {**variables, **{f"PYTRITON_{name}": str(port) for name, port in ports.items()}}
        variables |= {"PYTRITON_HOME": str(folder / "home"), "PYTRITON_TRITON_CONFIG_HTTP_ADDRESS": "127.0.0.1"}
        process = subprocess.Popen(command, cwd=folder / "models", env=variables, stderr=subprocess.PIPE, text=True)
        try:
            probe = json.loads(health.replace(":8000", f":{http}"))

            def is_healthy():
                assert process.poll() is None, process.stderr.read()
                return not subprocess.run(probe, env=variables, capture_output=True).returncode

            wait_for(is_healthy, "the health check of the image")
            row = iris()[0][3]
            url = f"http://127.0.0.1:{rest}/predict/iris"
            answer = httpx.post(url, json=saved.values(row), timeout=DEADLINE_S, trust_env=False).json()
            assert answer["best"] == saved.answer(row[None])["best"][0]
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, log


def test_a_program_that_inspect_wrote_is_built_with_its_model(saved, tmp_path):
    shutil.copy(saved.path, tmp_path / "layer.onnx")
    program = tmp_path / "server.py"
    written = run("inspect", os.path.relpath(tmp_path / "layer.onnx"), f"--write={program}")
    assert written.returncode == 0, written.stderr
    build(program, "-o", tmp_path / "image")
    assert {each.name for each in (tmp_path / "image" / "models").iterdir()} == {"server.py", "layer.onnx"}
    assert json.loads(*instructions(tmp_path / "image", "ENTRYPOINT")) == ["python"]
    assert "onnxruntime==" in (tmp_path / "image" / "requirements.lock").read_text()


def test_a_folder_of_others_is_not_touched(saved, image, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("kept")
    assert "was not made by pytriton build" in refusal(saved.path, "-o", tmp_path / "mine")
    shutil.copytree(image, tmp_path / "changed")
    (tmp_path / "changed" / "kubernetes" / "base" / "token").write_text("a secret of mine")
    before = contents(tmp_path / "changed")
    assert "token is not as pytriton build has left it" in refusal(saved.path, "-o", tmp_path / "changed")
    assert contents(tmp_path / "changed") == before
    shutil.copytree(image, tmp_path / "more")
    (tmp_path / "more" / "notes").write_text("kept")
    assert "notes is not as pytriton build has left it" in refusal(saved.path, "-o", tmp_path / "more")
    inside = image / "models" / "iris" / "layer.onnx"
    assert "which would be replaced; choose another folder" in refusal(inside, "-o", image)
    assert contents(tmp_path / "mine").keys() == {Path("notes")}


def test_what_cannot_be_built_is_told_in_one_line(tmp_path):
    output = tmp_path / "image"
    joblib = of_joblib(tmp_path)
    assert "can run any code when it is loaded" in refusal(joblib.path, "-o", output)
    assert "there is no file" in refusal(tmp_path / "missing.onnx", "-o", output)
    assert "has no tag" in refusal(joblib.path, "--trust", "--name=models", "-o", output)
    (tmp_path / "server.py").write_text("import nothing_here\n")
    assert "the module 'nothing_here' is not installed here" in refusal(tmp_path / "server.py", "-o", output)
    assert "give one program" in refusal(tmp_path / "server.py", "--trust", "-o", output)
    assert not output.exists()
