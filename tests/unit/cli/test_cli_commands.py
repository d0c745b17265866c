"""The command line as a user types it, as far as it needs no server."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pytriton.cli import EXTRA, main
from pytriton.cli.app import app
from pytriton.cli.examples import list_examples

COMMANDS = ["check", "env", "examples", "example-add-sub", "example-add-sub-script", "serve", "bench", "status"]
COMMANDS += ["record", "replay"]
WITHOUT = "import sys; sys.modules[{!r}] = None; from pytriton.cli import main; main()"


def run(*arguments, **environment):
    return CliRunner().invoke(app, arguments, env=environment)


def plain(text):
    """Without colours and frames, in one line."""
    return " ".join(re.sub(r"\x1b\[[\d;]*m|[│╭╮╰╯─]", " ", text).split())


def test_help_lists_each_command():
    result = run("--help")
    assert result.exit_code == 0
    assert [name for name in COMMANDS if f" {name} " not in plain(result.output)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_what_it_does(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"{command} [OPTIONS]" in plain(result.output)


def test_the_version_is_that_of_the_package():
    assert run("--version").output == f"pytriton {metadata.version('pytriton')}\n"


@pytest.mark.parametrize("arguments", [["check"], []])
def test_check_is_the_default_and_refuses_a_workspace_that_exists(arguments, tmp_path):
    result = run(*arguments, "-w", str(tmp_path))
    assert result.exit_code == 2
    assert f"{tmp_path} exists; give a folder that does not exist yet" in result.output


def test_check_leaves_a_workspace_that_exists_alone(tmp_path):
    run("check", "--zip", "-w", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_examples_lists_commands_and_programs():
    output = run("examples").output
    assert "pytriton example-add-sub\n      Serve and call a model in one process." in output
    assert "python quickstart.py\n" in output


def test_a_wheel_has_its_example_programs_in_the_package(tmp_path):
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "small.py").write_text('"""Serves little.\n\nAnd more."""\n')
    lines = [*list_examples([tmp_path / "missing", tmp_path / "examples"])]
    assert f"\nPrograms in {tmp_path / 'examples'}:" in lines
    assert lines[-1] == "  python small.py\n      Serves little."


@pytest.mark.parametrize(
    ("module", "command"),
    [("typer", "--help"), ("rich", "status"), ("watchfiles", "serve json:dumps --reload"), ("packaging", "build")],
)
def test_without_its_libraries_the_command_says_what_to_install(module, command):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module), *command.split()], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == f"The command line needs {module}; install it with: pip install 'pytriton[cli]'\n"


def test_an_unknown_option_is_refused():
    assert run("check", "--nope").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models"], "'models' is not of the form module:object"),
        (["models.py:bind"], "'models.py' is a file; name the module instead: models:bind"),
        (["no_such_module:bind"], "there is no module 'no_such_module'"),
        (["models:bind", "--log-level", "loud"], "there is no log level 'loud'"),
        (["models:bind", "--app-dir", "no/such/folder"], "the folder no/such/folder does not exist"),
        (["models:bind", "-o", "no_field=1"], "option 'no_field=1' is not FIELD=VALUE"),
        (["models:bind", "-o", "http_port"], "option 'http_port' is not FIELD=VALUE"),
        (["json:dumps", "--reload", "--reload-dir", "no/such/folder"], "the folder no/such/folder does not exist"),
    ],
)
def test_serve_says_what_is_wrong_with_its_arguments(arguments, message):
    command = [sys.executable, "-m", "pytriton", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"pytriton: {message}")


def test_serve_refuses_an_option_of_the_server_with_a_wrong_value():
    command = [sys.executable, "-m", "pytriton", "serve", "models:bind", "--http-port", "70000"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "HTTP_PORT: expected an integer" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "x"], "shape 'x' is not of the form name=3,224"),
        (["--roots", "roots.pem"], "certificates and keys need --tls"),
        (["-c", "0"], "Invalid value for '--concurrency'"),
        (["--tls", "--roots", "no/such/file.pem"], "cannot be read"),
    ],
)
def test_bench_says_what_is_wrong_with_its_arguments(arguments, message):
    result = run("bench", "localhost:1", "m", *arguments)
    assert result.exit_code != 0
    assert message in plain(result.output)


@pytest.mark.parametrize("command", [["bench", "ftp://host", "m"], ["status", "ftp://host"]])
def test_a_bad_url_is_refused(command):
    result = run(*command)
    assert result.exit_code == 1
    assert "scheme 'ftp' is not supported" in result.output


def test_the_command_and_its_libraries_are_those_of_the_package():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    entry = metadata.EntryPoint("pytriton", project["scripts"]["pytriton"], "console_scripts")
    assert entry.load() is main
    extra = {re.match(r"[\w-]+", requirement)[0] for requirement in project["optional-dependencies"]["cli"]}
    assert extra == {*EXTRA}


@pytest.mark.parametrize("arguments", [["keys", "server"], ["worker", "models:make", "--connect", "tcp://server:5555"]])
def test_commands_of_an_extra_say_which_one_is_missing(arguments, tmp_path):
    program = WITHOUT.format("zmq")
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"pytriton: {arguments[0]} needs pyzmq, which is not installed; run pip install 'pytriton[cluster]'\n"
    )
    assert not [*tmp_path.iterdir()]
