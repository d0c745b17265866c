"""What a type checker sees of the package, as a program that is checked with ``mypy --strict``."""

import inspect
import pydoc
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from pytriton.decorators import batch, fill_optionals, group_by_keys

PROGRAM = """
import numpy as np
from numpy.typing import NDArray
from pytriton import ModelClient, ModelConfig, Tensor, Triton, TritonContext
from pytriton import batch, fill_optionals, first_value, group_by_keys, group_by_values, pad_batch, sample
from pytriton import triton_context

Array = NDArray[np.float32]
X = np.ones((1, 1), np.float32)

@batch
def add(a: Array, b: Array) -> dict[str, Array]:
    return {"sum": a + b}

@fill_optionals(b=X)
@group_by_keys
@batch
@group_by_values("a")
@pad_batch
@first_value("b")
def stack(a: Array, b: np.float32) -> list[Array]:
    return [a * b]

@batch
@triton_context
def told(a: Array, triton_context: TritonContext) -> list[Array]:
    return [a]

@sample
async def later(a: Array) -> list[Array]:
    return [a]

class Model:
    @batch
    def __call__(self, a: Array) -> list[Array]:
        return [a]

reveal_type(add)  # [a: , b: ]
reveal_type(stack)  # [a: , b: ]
reveal_type(later)  # Coroutine
reveal_type(add.__wrapped__)  # def (a: , b: )
reveal_type(Triton)  # pytriton.triton.Triton
reveal_type(ModelClient)  # ModelClient
add([{"a": X, "b": X}])
told([{"a": X}])
Model()([{"a": X}])
with Triton() as triton:
    tensors = [Tensor(name="a", shape=(1,), dtype=np.float32)]
    for function in (add, stack, told, later, Model()):
        triton.bind("model", function, tensors, tensors, config=ModelConfig(max_batch_size=8), replace=True)
    config = ModelConfig()
    config.max_batch_size = 8
add(X)  # error: "Sequence[Mapping
add.__wrapped__(X)  # error: Too few arguments
config.max_batch_size = "8"  # error: Incompatible types
batch(3)  # error: incompatible type "int"
"""


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is installed for linting alone")
def test_a_type_checker_sees_through_the_decorators_and_the_package(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    command = [sys.executable, "-m", "mypy", path, "--config-file", tmp_path / "mypy.ini", "--cache-dir", tmp_path]
    # A process of its own, since it leaves millions of objects, and each collection of garbage would look at them.
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    said = {int(line): text for line, text in re.findall(r"program\.py:(\d+): (.*)", done.stdout)}
    expected = {
        number: line.partition("  # ")[2] for number, line in enumerate(PROGRAM.split("\n"), 1) if "  # " in line
    }
    assert said.keys() == expected.keys()
    for number, words in expected.items():
        for word in words.removeprefix("error: ").replace("]", " ").split():
            assert word in said[number].replace("]", " ")
        assert said[number].startswith("error:" if words.startswith("error:") else "note: Revealed type")


@fill_optionals(b=np.ones(1))
@group_by_keys
@batch
def decorated(a: int, b: int = 2) -> str:
    """What the user wrote."""


class Decorated:
    @batch
    def method(self, a, b):
        """What the user wrote, too."""


@pytest.mark.parametrize(
    ("function", "signature", "text"),
    [
        (decorated, "(a: int, b: int = 2) -> str", "What the user wrote."),
        (Decorated.method, "(self, a, b)", "What the user wrote, too."),
        (Decorated().method, "(a, b)", "What the user wrote, too."),
    ],
)
def test_signature_and_help_of_a_decorated_function_are_those_of_the_function(function, signature, text):
    assert str(inspect.signature(function)) == signature
    shown = pydoc.plain(pydoc.render_doc(function))
    assert f"{function.__name__}{signature}" in shown
    assert text in shown
