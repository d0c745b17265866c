"""Programs of torch.export and TorchScript, loaded and called in this process: `make test-torch` runs this."""

from __future__ import annotations

import io
import os
import zipfile
from contextlib import suppress

import numpy as np
import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import ModelConfig
from pytriton.saved import load
from pytriton.signature.problems import ValueMismatchError
from tests.unit.saved.files import iris

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch installs it")
from tests.torch.networks import BATCH, NETWORKS, exported  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(params=NETWORKS, scope="module")
def saved(request, tmp_path_factory):
    return NETWORKS[request.param](tmp_path_factory.mktemp("saved"))


def refusal(path, **options):
    with pytest.raises(PyTritonValidationError) as caught:
        load(path, **options)
    (line,) = str(caught.value).splitlines()
    return line


def test_a_batch_a_row_and_the_example_are_answered_as_pytorch_does(saved):
    rows, model = iris()[0], load(saved.path, **saved.options)
    for name, values in saved.answer(rows).items():
        found = model.predict({"x": rows.astype(np.float32)})[name]
        np.testing.assert_array_equal(found.reshape(values.shape), values)
    expected = saved.answer(rows[70:71])
    found = model(**saved.values(rows[70]))
    assert found["scores"].tolist() == expected["scores"][0].tolist()
    assert found["best"] == expected["best"][0]
    assert model.signature.inputs == {"x": {"type": "array", "dtype": "FP32", "shape": [4]}}
    assert model.signature.outputs["scores"]["shape"] == [3]
    assert model.signature.examples[0]["input"] == {"x": [0, 0, 0, 0]}
    (warmup,) = model.derived(ModelConfig()).config.model_warmup
    assert warmup.batch_size == 1


def test_a_call_has_its_share_of_threads(saved):
    before = torch.get_num_threads()
    try:
        load(saved.path, **saved.options, threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_network_must_be_trusted_and_is_known_by_what_it_contains(saved, tmp_path):
    renamed = tmp_path / "model.bin"
    renamed.write_bytes(saved.path.read_bytes())
    needed = (
        "need a function or class that makes their network"
        if "module" in saved.options
        else "which can run any code when"
    )
    assert needed in refusal(renamed)
    assert load(renamed, **saved.options).__name__ == "model"


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_a_network_that_is_cut_off_is_told(saved, share, tmp_path):
    data = saved.path.read_bytes()
    (tmp_path / saved.path.name).write_bytes(data[: int(share * len(data))])
    assert "damaged" in refusal(tmp_path / saved.path.name, **saved.options)


def test_a_module_that_makes_no_network_of_the_weights_is_told(tmp_path):
    path, options, *_ = NETWORKS["weights"](tmp_path)
    for factory, message in {
        "tests.torch.networks:Other": "has no attribute 'Other'",
        "tests.no_such:Layer": "No module named 'tests.no_such'",
        "tests.torch.test_saved_torch:Several": "Unexpected key(s) in state_dict",
    }.items():
        found = refusal(path, **{**options, "module": factory})
        assert found.startswith(f"{path}: {factory} makes no network of these weights (")
        assert message in found
    assert "does not say which dtype and shape its input 'x' has" in refusal(path, module=options["module"])


class Several(torch.nn.Module):
    def forward(self, x, y, scale=2, *, z):
        return (x * scale).relu(), {"sums": (y.sum(-1), z)}


def test_inputs_and_outputs_are_those_of_the_programs_signature(tmp_path):
    half, axes = torch.zeros(2, 4, dtype=torch.bfloat16), {"x": {0: BATCH}, "y": {0: BATCH}, "z": {0: BATCH}}
    program = torch.export.export(
        Several(), (half, torch.zeros(2, 3, 5)), {"z": torch.zeros(2, dtype=torch.int64)}, dynamic_shapes=axes
    )
    torch.export.save(program, tmp_path / "several.pt2")
    model = load(tmp_path / "several.pt2", trust=True)
    assert [*model.signature.inputs] == ["x", "y", "z"]
    assert model.signature.inputs["x"]["dtype"] == "FP32"  # NumPy has no bfloat16
    found = model(x=[-1, 2, 3, 4], y=np.ones((3, 5), np.float32), z=7)
    assert {name: np.asarray(value).tolist() for name, value in found.items()} == {
        "output_0": [0, 4, 6, 8],
        "output_1_sums_0": [5, 5, 5],
        "output_1_sums_1": 7,
    }


def test_open_axes_stay_open_and_a_batch_axis_that_is_not_certain_is_asked_for(tmp_path):
    axis = torch.export.Dim.DYNAMIC
    path = exported(torch.nn.ReLU(), tmp_path / "relu.pt2", torch.zeros(2, 3, 5), input={0: axis, 2: axis})
    model = load(path, trust=True)
    assert model.signature.inputs["input"]["shape"] == [3, -1]
    assert model.predict({"input": np.ones((2, 3, 9), np.float32)})["result"].shape == (2, 3, 9)
    path = exported(torch.nn.Bilinear(2, 2, 1), tmp_path / "two.pt2", *2 * [torch.zeros(2, 2)])
    assert not load(path, trust=True).contents.batching  # as all sizes are fixed
    program = exported(torch.nn.PairwiseDistance(), tmp_path / "pair.pt2", torch.zeros(2, 4), torch.zeros(1, 4),
                       x1={0: axis}, x2=None)  # fmt: skip
    assert "which axis is that of the batch? Its inputs are x1 (" in refusal(program, trust=True)


def test_rows_beyond_what_a_program_was_exported_for_are_an_error_of_their_request(tmp_path):
    few = torch.export.Dim("batch", max=6)
    path = exported(torch.nn.ReLU(), tmp_path / "few.pt2", torch.zeros(2, 4), input={0: few})
    model = load(path, trust=True)
    with pytest.raises(ValueMismatchError, match="Guard failed"):
        model.predict({"input": np.zeros((7, 4), np.float32)})


def test_types_that_torchscript_does_not_have_are_asked_for(tmp_path):
    network = torch.nn.Bilinear(2, 1, 1)
    torch.jit.script(network).save(tmp_path / "two.pt")
    expected = network(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]])).item()
    message = "does not say which dtype and shape its input 'input2' has; tell them without the batch axis"
    assert message in refusal(tmp_path / "two.pt", trust=True, inputs={"input1": "float32:2"})
    types = {"input1": "float32:2", "input2": "float32:1"}
    assert load(tmp_path / "two.pt", trust=True, inputs=types)(input1=[1, 2], input2=[3]) == pytest.approx(expected)
    assert "has no input 'x'" in refusal(tmp_path / "two.pt", trust=True, inputs={**types, "x": "float32"})
    torch.jit.trace(torch.nn.ReLU(), torch.zeros(2)).save(tmp_path / "traced.pt")
    model = load(tmp_path / "traced.pt", trust=True, inputs={"input": "float32:-1"}, batch=False)
    assert model(input=[-1, 2, 3]).tolist() == [0, 2, 3]


# What runs when a file is loaded: the reasons for which these formats must be trusted.


class Making:
    """Whose pickle makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Writing(torch.nn.Module):
    """Which writes a file when it is loaded."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x):
        return x

    @torch.jit.export
    def __getstate__(self):
        return (self.path, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]):
        self.path, self.training = state
        torch.save(torch.zeros(1), self.path)


def changed(path, found, change):
    """A copy of a program in which one file is another."""
    copy = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(copy, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            after.writestr(name, change(data) if name.endswith(found) else data)
    return copy


def pickled(path):
    file = io.BytesIO()
    torch.save(Making(path), file)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["pickle", "size", "script"])
def test_a_file_that_runs_code_runs_none_without_trust(kind, tmp_path):
    made = tmp_path / "made"
    if kind == "script":
        torch.jit.script(Writing(str(made))).save(tmp_path / "writing.pt")
        path = tmp_path / "writing.pt"
    else:
        path = NETWORKS["export"](tmp_path).path
        symbol = b"Symbol('"
        code = f"__import__('os').mkdir('{made}') or {symbol.decode()}".encode()
        path = (
            changed(path, "sample_inputs/model.pt", lambda _: pickled(made))
            if kind == "pickle"
            else changed(path, "model.json", lambda data: data.replace(symbol, code, 1))
        )
    made.unlink(missing_ok=True)  # as scripting may have written it
    assert "which can run any code when it is loaded" in refusal(path)
    assert not made.exists()
    with suppress(PyTritonValidationError):  # of what is missing then
        load(path, trust=True)
    assert made.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_is_told_with_what_to_do(zipped, tmp_path):
    network = {"module": torch.nn.Linear(4, 3), "made": Making(tmp_path / "made")}
    torch.save(network, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    line = refusal(tmp_path / "model.pt", trust=True)
    assert "is a checkpoint of torch.save, which has no program" in line
    assert "torch.export.save(torch.export.export(network, inputs), 'model.pt2')" in line
    assert not (tmp_path / "made").exists()
