"""The first ten minutes of a new user, in a fresh environment: each step says how long it took, and what was seen.

    python newcomer.py                       installs the checkout with its extra rest, which compiles
    python newcomer.py --wheel dist/X.whl    installs a wheel
    python newcomer.py --here                takes the environment of this interpreter

The programs are the first two of the README. The ports are free ones.
"""

import argparse
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
VARIABLES = {
    "PYTRITON_TRITON_CONFIG_HTTP_PORT": 8000,
    "PYTRITON_TRITON_CONFIG_GRPC_PORT": 8001,
    "PYTRITON_TRITON_CONFIG_METRICS_PORT": 8002,
    "PYTRITON_REST_PORT": 8080,
}
# A client as the README's, of a model or a port that is not there.
CLIENT = """
from pytriton import ModelClient

with ModelClient("http://localhost:{port}", "{model}") as client:
    print(client.call(text="PyTriton serves Python functions"))
"""


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--wheel", type=Path)
    options.add_argument("--here", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if given.here:
            python = Path(sys.executable)
        else:
            with timed("a virtual environment"):
                venv.create(folder / "venv", with_pip=True)
            python = folder / "venv" / "bin" / "python"
            with timed("pip install"):
                what = f"{given.wheel.resolve() if given.wheel else ROOT}[rest]"
                subprocess.run([python, "-m", "pip", "install", "--quiet", what], check=True)
        ports = dict(zip(VARIABLES.values(), free_ports(len(VARIABLES))))
        server, client = programs(ports)
        (folder / "server.py").write_text(server)
        (folder / "client.py").write_text(client)
        environment = os.environ | {name: str(ports[port]) for name, port in VARIABLES.items()}
        run_steps(python, folder, ports, environment)


def programs(ports):
    """The README's server and client, with the ports of this machine."""
    blocks = re.findall(r"^```python\n(# (?:server|client)\.py.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    return [re.sub(r"localhost:(\d+)", lambda found: f"localhost:{ports[int(found[1])]}", each) for each in blocks[:2]]


def run_steps(python, folder, ports, environment):
    with serving(python, folder, environment) as shown:
        command = re.search(r"Try it: +(.*?)\r?\n", shown)[1]
        with timed("the curl command that the server printed"):
            say(run(["bash", "-c", command], environment))
        with timed("client.py"):
            say(run([python, folder / "client.py"], environment))
        for what, port, model in (
            ("a client of the port of the HTTP API", 8080, "longest_word"),
            ("a client of the port of metrics", 8002, "longest_word"),
            ("a client of the port of gRPC", 8001, "longest_word"),
            ("a client with a typo", 8000, "longest_wrod"),
        ):
            with timed(what):
                say(last_line(run([python, "-c", CLIENT.format(port=ports[port], model=model)], environment)))
        for page in ("/", "/docs"):
            with timed(f"the page {page}"):
                with urllib.request.urlopen(f"http://localhost:{ports[8080]}{page}") as answer:
                    say(f"{answer.status} {answer.headers['content-type']}")
    with timed("a client without a server"):
        say(last_line(run([python, folder / "client.py"], environment)))


@contextmanager
def serving(python, folder, environment):
    """What the server shows on a terminal until it waits for Ctrl+C, which it gets in the end."""
    main, terminal = pty.openpty()
    with timed("server.py until it serves"):
        process = subprocess.Popen([python, folder / "server.py"], stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        shown = ""
        while "Ctrl+C" not in shown:
            shown += os.read(main, 4096).decode()
        say(shown)
    # What nobody reads would make it wait.
    threading.Thread(target=drain, args=(main,), daemon=True).start()
    try:
        yield shown
    finally:
        with timed("Ctrl+C"):
            process.send_signal(signal.SIGINT)
            say(f"exit status {process.wait(30)}")


def drain(terminal):
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # the process has ended
        pass


@contextmanager
def timed(what):
    start = time.monotonic()
    print(f"== {what}", flush=True)
    yield
    print(f"   {time.monotonic() - start:.1f} s", flush=True)


def run(command, environment):
    """Both outputs of a command, however it ends."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=60)
    return done.stdout.decode()


def last_line(output):
    return output.strip().splitlines()[-1]


def say(text):
    for line in text.strip().splitlines():
        print(f"   | {line}")


def free_ports(count):
    """Different ones, as all are held until the last is found."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    main()
