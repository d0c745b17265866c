"""Models served by this interpreter, and by those that ``make interpreters`` has made environments for, with each proxy
that they can have.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytriton.server.backends import LIBRARY
from tests.server.interpreters import ROOT, environment, interpreters
from tests.server.processes import Host

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

PROGRAM = Path(__file__).with_name("interpreter_host.py")
# No help with finding libraries: that is the package's part.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTRITON_PROXY")}
ENVIRONMENT |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
# Says what the Python backend lacks, if anything.
LACKING = """
from pytriton.exceptions import PyTritonServerError
from pytriton.server.installation import find_installation
from pytriton.server.backends import PythonBackend
try:
    PythonBackend.find(find_installation().home)
except PyTritonServerError as error:
    print(error)
"""


@pytest.fixture(params=[Path(sys.executable), *interpreters()], ids=str, scope="module")
def python(request):
    """This interpreter, or another one's environment for the tests; what else is installed there says nothing."""
    if request.param == Path(sys.executable):
        return request.param
    if not (environment(request.param) / "complete").exists():
        pytest.skip(f"{request.param} has no environment, see make interpreters")
    return environment(request.param) / "bin" / "python"


@pytest.fixture(params=["native", "python"])
def proxy(request, python):
    """A proxy that can serve models of the interpreter."""
    if request.param == "native" and not LIBRARY.is_file():
        pytest.skip("the native proxy was not built")
    if request.param == "python" and (lacking := run(python, LACKING).stdout):
        pytest.skip(lacking)
    return request.param


def run(python, source):
    return subprocess.run([python, "-c", source], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)


def test_models_of_all_kinds_are_served_over_both_protocols_and_nothing_is_left(python, proxy, tmp_path, free_config):
    host = Host(tmp_path, free_config, proxy, program=[python, PROGRAM], environment=ENVIRONMENT)
    try:
        answers = {"double": [[2, 4]], "triple": [[3, 6]]}
        streamed = {"count": [[[1, 2]], [[2, 4]], [[3, 6]]]}
        assert json.loads((tmp_path / "answers.json").read_text()) == {"http": answers, "grpc": answers | streamed}
        output = host.end(signal.SIGTERM)
        assert host.process.returncode == 0, output
        assert "Traceback" not in output
        host.assert_nothing_left()
    finally:
        host.kill()
