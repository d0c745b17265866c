"""``load``: a saved model as a callable for ``bind``."""

from __future__ import annotations

import importlib
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pytriton.decorators.batching import batch as with_batch_axis
from pytriton.decorators.batching import sample
from pytriton.exceptions import PyTritonValidationError
from pytriton.files.formats import WEIGHTS, Format
from pytriton.files.probe import damaged
from pytriton.logs import get_logger
from pytriton.model_config import ModelConfig
from pytriton.saved.contents import FEATURES, Arrays, Contents, LoadOptions
from pytriton.saved.layouts import locate_trusted
from pytriton.saved.results import encoder_of, has_nan, outputs_of, schema_of_output, with_labels
from pytriton.signature.derive import Derived
from pytriton.signature.examples import in_json, warmed, zero_of
from pytriton.signature.problems import Problem, ValueMismatchError
from pytriton.signature.schema import OBJECT, RESULT, VALUE, Schema, Signature, schema_in, tensor_of
from pytriton.signature.served import OwnForm
from pytriton.signature.values import SignatureCodec, decode_rows, encode_rows, with_texts
from pytriton.threads import default_threads

__all__ = ["SavedModel", "load"]

LOGGER = get_logger("pytriton.saved")

ROWS = (3, 5)  # of the examples that find out whether outputs have a batch axis; other axes hardly have both
ROWS_OF_TABLES, ROWS_OF_OTHERS = 4096, 128  # most rows in one call, if it is not told
MOST_ROW_BYTES = 4096  # of a row of another model that is one of a table
MOST_EXAMPLE_BYTES = 1 << 30
OPEN_SIZES = (1, 32, 224)  # tried in turn for open dimensions: some networks need an image of a certain size


def load(
    path: str | os.PathLike[str],
    *,
    method: str | None = None,
    trust: bool = False,
    inputs: Mapping[str, str] | None = None,
    batch: bool | None = None,
    labels: Sequence[str] = (),
    threads: int | None = None,
    sizes_batches: bool = False,
    module: str | None = None,
) -> SavedModel:
    """Load a file or folder that another library has written.

    Args:
        path: Also a folder with settings of MLServer, or with one such file, as KServe has it; ``file://`` may precede.
        method: Of the model, such as ``predict_proba``; default: ``predict``, if it has that.
        trust: Whether the file may run code, as pickles do. Trust only files whose origin you know.
        inputs: Types that take the place of what the file says, by name of the input: ``"int64"``, or with a shape
            without batch axis, ``"float32:3,-1,-1"``. ``"string"`` is text, and ``"bytes"`` a file.
        batch: Whether the first axis of all tensors is the batch's, of ONNX and PyTorch; default: it is found out.
        labels: Names of the classes, in the model's order, for files that have numbers of classes alone. A number of a
            class becomes its name, and a result with a column for each class has an output for each.
        threads: For one call of the model; default: ``OMP_NUM_THREADS``, or all cores that this process may use.
        sizes_batches: Whether ``most_rows`` takes the place of the ``max_batch_size`` that the model is bound with.
        module: For weights in safetensors: what makes their network, a function or class without arguments, such as
            ``package.module:factory``. It is imported and called.

    Raises:
        PyTritonValidationError: The file is damaged, of an unknown format or not trusted, or has not what was asked
            for; the message says what to do.
        ImportError: The library of its format is not installed; the message says how to install it.
        OSError: The file cannot be read.
    """
    found, file_format, name = locate_trusted(path, trust)
    if (module is not None) != (file_format.title == WEIGHTS):
        raise PyTritonValidationError(
            f"{found}: weights in safetensors, and no other file, need a function or class that makes their network, "
            "module='package.module:factory' (--module); or give the folder that they are in, with its config.json"
        )
    if len({*labels}) < len(labels):
        raise PyTritonValidationError(f"{found}: the labels {', '.join(labels)} have to be different")
    given = {name: schema_in(name, text) for name, text in (inputs or {}).items()}
    options = LoadOptions(method, trust, given, batch, labels, threads or default_threads(), module, file_format.title)
    contents = _read(found, file_format, options)
    if unknown := sorted(given.keys() - contents.inputs.keys()):
        raise PyTritonValidationError(f"{found} has no input {unknown[0]!r}; it has {', '.join(contents.inputs)}")
    contents = replace(contents, inputs={**contents.inputs, **given})
    if batch is not None and batch != contents.batching:
        raise PyTritonValidationError(f"{found}: only files of ONNX and PyTorch can be loaded without batch axis")
    if labels and isinstance(contents.predict, OwnForm):
        raise PyTritonValidationError(f"{found}: a chat has no classes; leave labels (--labels) out")
    if labels and not contents.is_labelled:
        call, is_usual = contents.predict, contents.method in ("", "predict")
        contents = replace(contents, predict=lambda arrays: with_labels(outputs_of(call(arrays)), labels, is_usual))
    most_rows = ROWS_OF_TABLES if file_format.has_tables else None
    model = SavedModel(name or name_of(found), contents, most_rows, sizes_batches)
    LOGGER.info("%s: %s; threads for a call: %d.", found, contents.kind, options.threads)
    return model


def name_of(path: Path) -> str:
    """The name of the model in a file: that of the file, with underscores for what names of models have not."""
    return re.sub(r"\W", "_", path.resolve().name if path.is_dir() else path.stem, flags=re.ASCII) or "model"


def _read(path: Path, file_format: Format, options: LoadOptions) -> Contents:
    """What the loader of a format finds in a file; errors of its library become one line that says what to do."""
    try:
        contents: Contents = importlib.import_module(f"pytriton.saved.{file_format.module}").read(path, options)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in file_format.packages:
            line = f"{path} needs {error.name}, which is not installed: pip install 'pytriton[{file_format.extra}]'"
            raise ImportError(line) from error
        listed = path / "requirements.txt"
        hint = f"pip install -r {listed}" if listed.is_file() else "install it, or put its folder into PYTHONPATH"
        line = f"{path} needs the module {error.name!r}, which is not installed here; {hint}"
        raise PyTritonValidationError(line) from error
    except ImportError as error:  # transformers tells at length what else to install
        raise ImportError(f"{path}: {' '.join(str(error).split())}") from error
    except (KeyboardInterrupt, PyTritonValidationError, SystemExit):
        raise
    except BaseException as error:  # also a panic of Rust
        raise damaged(path, file_format.title, error) from error
    if options.method is not None and not contents.methods:
        raise PyTritonValidationError(f"{path}: {contents.kind} has no methods; leave method (--method) out")
    return contents


class SavedModel(OwnForm):
    """A model in a file, as a callable for ``bind``; :func:`load` makes it.

    Its call takes the values of one row by name, as ``call`` of the clients does, and returns the result. That of a
    chat takes a ``request``, and yields what the model says.

    Attributes:
        contents: What its file has.
        signature: Its inputs, outputs, and an example.
        example: Equal rows of all inputs that the model has answered; arrays without batch axis if it has none.
        most_rows: With how many rows a call takes little memory: 4096 of a table, and 128 of others.
    """

    def __init__(self, name: str, contents: Contents, most_rows: int | None, sizes_batches: bool) -> None:
        self.__name__, self.contents, self._sizes_batches = name, contents, sizes_batches
        self._form = contents.predict if isinstance(contents.predict, OwnForm) else None
        self.example, results = ({}, {}) if contents.results and not contents.example else _try_example(contents)
        is_open, batching = _is_open(contents), contents.batching
        outputs = dict(contents.results) or {
            each: schema_of_output(each, value, contents.outputs.get(each), is_open=is_open, batching=batching)
            for each, value in results.items()
        }
        self._encoders = {each: encoder_of(schema, batching) for each, schema in outputs.items()}
        form = VALUE if [*outputs] == [RESULT] else OBJECT
        missing = _may_be_missing(contents, self.example) if batching and self.example else ()
        nullable: dict[str, Schema] = {each: contents.inputs[each] | {"nullable": True} for each in missing}
        inputs = {**contents.inputs, **nullable}
        self.signature = Signature(inputs, (*inputs,), outputs, (*outputs,), result=form, description=contents.kind)
        self.signature = replace(self.signature, examples=self._examples())
        self.most_rows = most_rows or (ROWS_OF_TABLES if _is_table(self.signature) else ROWS_OF_OTHERS)

    def __call__(self, /, **values: Any) -> Any:
        """The result for the values of one row; ValueError if they do not fit."""
        if self._form is not None:
            return self._form(**values)
        if values.keys() != self.signature.inputs.keys():
            raise ValueError(f"{self.__name__} takes {', '.join(self.signature.inputs)}, but got {', '.join(values)}")
        codec = SignatureCodec(self.signature)
        arrays = codec.arrays({name: values[name] for name in self.signature.inputs}, has_rows=False)
        if self.contents.batching:
            arrays = {name: array[np.newaxis] for name, array in arrays.items()}
        outputs = self.predict(arrays)
        return codec.result({name: array[0] for name, array in outputs.items()} if self.contents.batching else outputs)

    def predict(self, arrays: Arrays) -> Arrays:
        """The outputs for the inputs of a batch: shape ``(rows, ...)``; texts are objects of class ``bytes``.

        Raises:
            ValueMismatchError: The library refuses a value; it tells the library's words.
        """
        try:
            results = outputs_of(self.contents.predict(arrays))
        except self.contents.refusals as error:
            words = " ".join(str(error).split())
            path = self._refused_row(arrays)
            raise ValueMismatchError([Problem(path, f"values that the model accepts ({words})", "others")]) from error
        return {name: encode(results[name]) for name, encode in self._encoders.items()}

    def _refused_row(self, arrays: Arrays) -> tuple[int, ...]:
        """Which row of a batch the library refuses, the first or any other; empty if there are not several."""
        begin, end = 0, len(next(iter(arrays.values()))) if self.contents.batching else 1
        is_batch = end > 1
        while end - begin > 1:
            middle = (begin + end) // 2
            try:
                self.contents.predict({name: array[begin:middle] for name, array in arrays.items()})
                begin = middle
            except self.contents.refusals:
                end = middle
        return (begin,) if is_batch else ()

    def derived(self, config: ModelConfig) -> Derived:
        """The tensors of the model, its signature, and the example as its first warm-up."""
        if self._form is not None:
            return self._form.derived(config)  # type: ignore[no-any-return]
        if self.contents.batching and not config.batching:
            raise PyTritonValidationError(f"{self.__name__} is called with batches; leave batching=False out")
        rows = self.most_rows if self._sizes_batches else config.max_batch_size
        config = replace(config, batching=self.contents.batching, max_batch_size=rows)
        inputs = [tensor_of(name, schema) for name, schema in self.signature.inputs.items()]
        outputs = [tensor_of(name, schema) for name, schema in self.signature.outputs.items()]
        example = {name: array[:1] if self.contents.batching else array for name, array in self.example.items()}
        config = warmed(config, [example] if example else [])
        return Derived(inputs, outputs, config, self.signature, self.contents.marks)

    def served(self) -> Callable[..., Any]:
        """What answers a list of requests."""
        if self._form is not None:
            return self._form.served()
        decorate = with_batch_axis if self.contents.batching else sample
        return decorate(lambda **arrays: self.predict(arrays))

    def _examples(self) -> tuple[Schema, ...]:
        if not self.contents.batching or not self.example:
            return ()
        rows = {name: decode_rows(self.signature.inputs[name], array[:1]) for name, array in self.example.items()}
        values = {name: with_texts(row[0]) for name, row in rows.items()}
        return (*in_json([values], [with_texts(self(**values))], has_axis=False),)


def _try_example(contents: Contents) -> tuple[Arrays, dict[str, Any]]:
    """An example of all inputs, which the model has answered, and its outputs.

    Raises:
        PyTritonValidationError: The model fails for it, or gives other numbers of rows than it got; or it is too large.
    """
    failure: Exception | None = None
    sizes = OPEN_SIZES if _is_open(contents) else OPEN_SIZES[:1]
    for size in [each for each in sizes if _example_bytes(contents, each) <= MOST_EXAMPLE_BYTES]:
        one = {name: _example(schema, contents, name, size) for name, schema in contents.inputs.items()}
        try:
            return _try_rows(contents, one) if contents.batching else (one, outputs_of(contents.predict(one)))
        except PyTritonValidationError:
            raise
        except Exception as error:  # of the library
            failure = error
    reason = (
        f"{type(failure).__name__}: {failure!s:.300}" if failure else f"it takes over {MOST_EXAMPLE_BYTES >> 20} MiB"
    )
    raise PyTritonValidationError(
        f"{contents.kind} fails for an example made from its types ({reason}); tell the types of its inputs with "
        "inputs={'name': 'dtype:shape'} (--input name:dtype:shape)"
    ) from failure


def _example_bytes(contents: Contents, size: int) -> int:
    """What a batch of examples takes, whose open axes have a size."""
    tensors = [tensor_of(name, schema) for name, schema in contents.inputs.items()]
    rows = max(ROWS) if contents.batching else 1
    shapes = [[size if axis < 0 else axis for axis in each.shape] for each in tensors]
    return sum(
        rows * math.prod(shape) * np.dtype(each.dtype).itemsize for shape, each in zip(shapes, tensors, strict=True)
    )


def _is_table(signature: Signature) -> bool:
    """Whether a row has single numbers and vectors of floats alone, of few bytes, and no larger array results."""
    tensors = [tensor_of(name, schema) for name, schema in signature.inputs.items()]
    kinds = {each.name: np.dtype(each.dtype).kind for each in tensors}
    are_vectors = all(len(each.shape) == 1 and -1 not in each.shape for each in tensors)
    are_numbers = all(kinds[each.name] == "f" or (kinds[each.name] in "iub" and each.shape == (1,)) for each in tensors)
    row_bytes = sum(np.dtype(each.dtype).itemsize * each.shape[0] for each in tensors if are_vectors)
    has_arrays = any(len(schema.get("shape", ())) > 1 for schema in signature.outputs.values())
    return are_vectors and are_numbers and row_bytes <= MOST_ROW_BYTES and not has_arrays


def _is_open(contents: Contents) -> bool:
    return any(-1 in schema.get("shape", ()) for schema in contents.inputs.values())


def _try_rows(contents: Contents, one: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Batches of an example of one row, of which every output must have as many rows."""
    for rows in ROWS:
        arrays = {name: np.repeat(array, rows, axis=0) for name, array in one.items()}
        results = outputs_of(contents.predict(arrays))
        found = {name: len(value) if np.ndim(value) else 0 for name, value in results.items()}
        if wrong := [name for name, count in found.items() if count != rows]:
            raise PyTritonValidationError(
                f"{contents.kind}: output {wrong[0]!r} has {found[wrong[0]]} rows for {rows} rows of inputs, so its "
                "first axis is not that of a batch; ONNX and PyTorch files can be loaded with batch=False (--no-batch)"
            )
    return arrays, results


def _may_be_missing(contents: Contents, arrays: Arrays) -> Sequence[str]:
    """The columns of numbers that the model answers without: for NaN, it has results that are none."""
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    columns = [name for name in floats if name == FEATURES or "shape" not in contents.inputs[name]]

    def may_be(names: Sequence[str]) -> bool:
        missing = {name: np.full_like(arrays[name], np.nan) for name in names}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = outputs_of(contents.predict({**arrays, **missing}))
        except Exception:  # of the library
            return False
        return not any(map(has_nan, results.values()))

    if columns and may_be(columns):
        return columns
    return [name for name in columns if len(columns) > 1 and may_be([name])]


def _example(schema: Schema, contents: Contents, name: str, size: int) -> Any:
    """The array of an input, with one row if there is a batch axis."""
    rows = encode_rows(schema, [contents.example.get(name, zero_of(schema, size))], {}, (name,))
    return rows if contents.batching else rows[0]
