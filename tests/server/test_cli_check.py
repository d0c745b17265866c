"""``pytriton check``, ``env`` and the example commands, run as a user runs them."""

import zipfile

import pytest

from pytriton.server.installation import BUNDLED_VERSION
from tests.server.command import run

pytestmark = pytest.mark.either_proxy

FILES = ["add_sub.log", "add_sub_script.log", "report.txt", "server.log"]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """A check with both of its options, and the folder of its workspace."""
    folder = tmp_path_factory.mktemp("check")
    secret = {"MY_TOKEN": "t0p-s3cret", "OPTIONS": "--password t0p-s3cret"}
    server = {
        "PYTRITON_TRITON_CONFIG_GRPC_PORT": "7",
        "PYTRITON_TRITON_CONFIG_HTTP_RESTRICTED_API": "health:k=t0p-s3cret",
    }
    return run("-w", str(folder / "ws"), "--zip", **secret, **server), folder


def test_a_check_passes_here(checked):
    done, _ = checked
    assert done.returncode == 0, done.stdout + done.stderr
    assert "add_sub in this process: HTTP works\nadd_sub in this process: gRPC works\n" in done.stdout
    assert "add_sub as a script: passed" in done.stdout
    assert f"\nTriton {BUNDLED_VERSION} has published weaknesses" in done.stdout
    assert done.stdout.endswith("The self-test passed.\n")


def test_a_check_warns_of_what_it_shows_before_and_after(checked):
    assert checked[0].stdout.startswith("Privacy: ")
    assert checked[0].stdout.count("Privacy: ") == 2


def test_a_workspace_has_the_report_and_the_logs_for_its_owner_alone(checked):
    _, folder = checked
    assert sorted(path.name for path in (folder / "ws").iterdir()) == FILES
    assert (folder / "ws").stat().st_mode & 0o777 == 0o700
    assert "add_sub" in (folder / "ws" / "server.log").read_text()
    assert "HTTP works\ngRPC works\n" in (folder / "ws" / "add_sub_script.log").read_text()


def test_the_files_are_compressed_beside_the_workspace(checked):
    with zipfile.ZipFile(checked[1] / "ws.zip") as archive:
        assert sorted(archive.namelist()) == [f"ws/{name}" for name in FILES]


def test_the_report_has_all_sections_and_no_secrets(checked):
    report = (checked[1] / "ws" / "report.txt").read_text()
    for title in ("Python", "System", "Memory and disks", "Listening TCP sockets", "GPUs", "Packages", "Environment"):
        assert f"\n{title}\n====" in f"\n{report}"
    assert f"\nversion {BUNDLED_VERSION}\nTriton {BUNDLED_VERSION} has published weaknesses" in report
    assert "\noption from the environment: grpc_port=7\n" in report
    assert "\noption from the environment: http_restricted_api=(left out)\n" in report
    assert not any("t0p-s3cret" in path.read_text() for path in (checked[1] / "ws").iterdir())


def test_env_shows_the_report_alone():
    done = run("env")
    assert done.returncode == 0
    assert done.stdout.startswith("Python\n======\npytriton ")
    assert done.stderr.count("Privacy: ") == 2


def test_the_example_passes_here():
    done = run("example-add-sub")
    assert done.returncode == 0
    assert "passed in" in done.stdout


def test_a_check_without_a_server_fails_and_says_why(tmp_path):
    done = run("check", TRITONSERVER_HOME=str(tmp_path))
    assert done.returncode == 1
    assert f"add_sub in this process failed: PyTritonServerError: TRITONSERVER_HOME={tmp_path} holds no" in done.stdout
    assert "add_sub as a script failed with exit status 1" in done.stdout
    assert done.stdout.endswith("The self-test failed.\n")


def test_a_check_of_a_broken_server_shows_the_end_of_its_log(tmp_path):
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no disk >&2\nexit 3\n")
    program.chmod(0o755)
    done = run("example-add-sub-script", TRITONSERVER_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "the last lines of add_sub_script.log:" in done.stdout


def test_the_exposure_of_a_program_is_shown_and_nothing_is_launched(tmp_path):
    (tmp_path / "models.py").write_text("def length(text: str) -> int:\n    return len(text)\n")
    environment = {"PYTRITON_REST_PORT": "8123", "PYTRITON_TRITON_CONFIG_HTTP_ADDRESS": "127.0.0.1"}
    for arguments in ([], ["iris.onnx"], ["models.py", "--app-dir", str(tmp_path)]):
        done = run("check", "--exposure", *arguments, **environment)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert "[4] app        127.0.0.1:8123           no TLS" in lines
        (statistics,) = [line.split() for line in lines if line.startswith("statistics")]
        assert statistics == ["statistics", "token", "token", "-", "token", "token"]
    done = run("check", "models", **environment)
    assert done.returncode == 2
    assert "a target goes with --exposure" in done.stderr
