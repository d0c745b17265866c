"""Values of other libraries and of the standard library, as arguments and results of typed functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from jaxtyping import Float32

from pytriton.decorators import batch
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import ModelConfig
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.pool.inspection import tensors_of
from pytriton.pool.threads import workers_of
from pytriton.proxy.types import Request
from pytriton.signature.foreign import host_array
from pytriton.signature.schema import Signature
from pytriton.signature.served import served_form
from pytriton.signature.values import SignatureCodec, encode_rows
from pytriton.worker.context import Binding, TritonContext, current_binding

pandas = pytest.importorskip("pandas")

DAY, NOON = date(2026, 2, 28), time(12, 30, 15)
MOMENT = datetime(2026, 2, 28, 12, 30, tzinfo=timezone(timedelta(hours=1)))
NUMBER = UUID("12345678-1234-5678-1234-567812345678")
CPU, CUDA = (1, 0), (2, 3)


def annotated(function: Callable[..., Any], result: Any = None, **parameters: Any) -> Any:
    function.__annotations__ = {**parameters, **({} if result is None else {"return": result})}
    return function


class Model:
    """A typed function, called as a client and the server call it."""

    def __init__(self, function: Any, example: Any = None) -> None:
        derived = tensors_of("model", 1, workers_of(function), None, None, ModelConfig(), example)
        assert derived.signature is not None
        specs = [
            [TensorSpec(each.name, tuple(each.shape), each.dtype) for each in side]
            for side in (derived.inputs, derived.outputs)
        ]
        self.signature: Signature = derived.signature
        self._config = TritonModelConfig(
            "m", inputs=specs[0], outputs=specs[1], backend_parameters={**derived.parameters}
        )
        self._codec = SignatureCodec(derived.signature)
        self._served = served_form(function, self._config)

    def arrays(self, **values: Any) -> dict[str, np.ndarray]:
        return {name: array[np.newaxis] for name, array in self._codec.arrays(values, has_rows=False).items()}

    def response(self, **values: Any) -> dict[str, np.ndarray]:
        token = current_binding.set(Binding(self._served, self._config, TritonContext()))
        try:
            (response,) = self._served([Request(self.arrays(**values))])
        finally:
            current_binding.reset(token)
        if isinstance(response, Exception):
            raise response
        return {**response}

    def __call__(self, **values: Any) -> Any:
        return self._codec.result({name: array[0] for name, array in self.response(**values).items()})


# Dates, identifiers, decimal numbers.


@pytest.mark.parametrize(
    ("kind", "value", "text", "form"),
    [
        (date, DAY, "2026-02-28", "date"),
        (time, NOON, "12:30:15", "time"),
        (datetime, MOMENT, "2026-02-28T12:30:00+01:00", "date-time"),
        (UUID, NUMBER, str(NUMBER), "uuid"),
        (Decimal, Decimal("1.10"), "1.10", "decimal"),
    ],
)
def test_values_with_a_text_form_travel_as_texts(kind, value, text, form):
    seen = []

    def same(x, many, inside):
        seen.append((x, many, inside))
        return x

    model = Model(annotated(same, kind, x=kind, many=list[kind], inside=dict[str, kind]))
    assert model.signature.inputs["x"] == {"type": "string", "format": form}
    for given in value, text:
        assert model(x=given, many=[given, given], inside={"a": given}) == text
    assert seen == [(value, [value, value], {"a": value})] * 2
    assert {type(found) for found, _, _ in seen} == {kind}


def test_a_record_and_a_default_may_have_them():
    @dataclass
    class Order:
        day: date
        price: Decimal = Decimal("0.5")

    def told(order, since=DAY):
        assert (order.day, order.price, since) == (DAY, Decimal("2.5"), DAY)
        return order

    told = annotated(told, Order, order=Order, since=date)
    told.__globals__.update(Order=Order)
    model = Model(told)
    assert model.signature.inputs["since"]["default"] == "2026-02-28"
    for price in "2.5", 2.5, Decimal("2.5"):
        assert model(order={"day": "2026-02-28", "price": price}) == {"day": "2026-02-28", "price": "2.5"}


def test_the_zone_of_a_moment_may_be_z():
    model = Model(annotated(lambda x: x.utcoffset() == timedelta(0), bool, x=datetime))
    assert model(x="2026-02-28T12:30:00Z") is True


@pytest.mark.parametrize(("kind", "text"), [(date, "2026-02-30"), (UUID, "x"), (Decimal, "1,5"), (time, "25:00")])
def test_a_text_that_is_none_is_refused_with_the_place(kind, text):
    model = Model(annotated(lambda x: 1, int, x=kind))
    with pytest.raises(ValueError, match=rf'\["x"\]: expected a valid value, got "{text}"'):
        model(x=text)


def test_a_union_takes_what_fits():
    model = Model(annotated(lambda x: type(x).__name__, str, x=date | datetime | int | str))
    assert [model(x=each) for each in ("2026-02-28", "2026-02-28T10:00", 3, "a")] == ["date", "datetime", "int", "str"]


def test_an_example_tells_them_too():
    model = Model(lambda day, year: date.fromisoformat(day).replace(year), {"day": DAY, "year": 2027})
    assert model.signature.inputs["day"] == {"type": "string", "format": "date"}
    assert model.signature.outputs["result"] == {"type": "string", "format": "date"}
    assert model(day=DAY, year=2025) == "2025-02-28"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Path, "Path is not a supported type; write x: str for a name, or bytes for what is in the file"),
        (timedelta, "timedelta is not a supported type; write x: float for seconds"),
        (type(sys.stdout.buffer), "write x: bytes"),
    ],
)
def test_other_types_are_refused_with_what_to_write(kind, message):
    with pytest.raises(PyTritonValidationError, match=message):
        Model(annotated(lambda x: 1, int, x=kind))


def test_a_result_of_another_type_is_refused_with_what_to_write():
    with pytest.raises(PyTritonValidationError, match="write -> str for a name"):
        Model(annotated(lambda x: 1, Path, x=int))


# Tables of pandas.


def test_tables_travel_as_records():
    def doubled(table):
        assert isinstance(table, pandas.DataFrame)
        return table.assign(b=table["a"] * 2)

    model = Model(annotated(doubled, pandas.DataFrame, table=pandas.DataFrame))
    records = [{"a": 1, "b": 2}, {"a": 2, "b": 4}]
    for given in [{"a": 1}, {"a": 2}], pandas.DataFrame({"a": [1, 2]}, index=["x", "y"]):
        assert model(table=given) == records


def test_what_is_missing_in_a_table_is_null_and_dates_are_texts():
    table = pandas.DataFrame({"x": [1.5, np.nan], "t": [pandas.Timestamp(DAY), pandas.NaT], 3: ["a", None]})
    model = Model(annotated(lambda n: table, pandas.DataFrame, n=int))
    assert model(n=1) == [
        {"x": 1.5, "t": "2026-02-28T00:00:00", "3": "a"},
        {"x": None, "t": None, "3": None},
    ]


def test_an_example_may_be_a_table():
    model = Model(lambda table, n: len(table) + n, {"table": pandas.DataFrame({"a": [1, 2]}), "n": 1})
    assert model(table=[{"a": 1}], n=2) == 3


# Tensors of PyTorch, of which these stand-ins do what the real ones do.


class Tensor:
    """Of a GPU, if its device says so: NumPy cannot read it before ``cpu()``."""

    def __init__(
        self, array: np.ndarray, device: tuple[int, int] = CPU, dtype: str = "", detached: bool = False
    ) -> None:
        self.array, self.device, self.detached = array, device, detached
        self.dtype = dtype or f"torch.{array.dtype}"

    def detach(self) -> Tensor:
        return Tensor(self.array, self.device, self.dtype, detached=True)

    def cpu(self) -> Tensor:
        return Tensor(self.array, CPU, self.dtype, self.detached)

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32), self.device, "torch.float32", self.detached)

    def cuda(self) -> Tensor:
        return Tensor(self.array, CUDA)

    def __mul__(self, factor: int) -> Tensor:
        return Tensor(self.array * factor, self.device)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("can't convert this tensor to numpy; use Tensor.cpu()")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        assert self.detached
        if self.device != CPU or "bfloat16" in self.dtype:
            raise BufferError("NumPy cannot have this")
        return self.array.__dlpack__()


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    def from_numpy(array: np.ndarray) -> Tensor:
        assert array.flags.writeable
        return Tensor(array)

    monkeypatch.setattr(Tensor, "__module__", "torch")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, from_numpy=from_numpy))


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_function_of_values_gets_and_returns_tensors():
    def doubled(x):
        assert isinstance(x, Tensor)
        return x.cuda() * 2

    tensor = Float32[Tensor, "2 3"]
    model = Model(annotated(doubled, tensor, x=tensor))
    assert (model.signature.inputs["x"]["dtype"], model.signature.outputs["result"]["shape"]) == ("FP32", [2, 3])
    for given in X, X.tolist(), Tensor(X), Tensor(X).cuda():
        assert np.array_equal(model(x=given), X * 2)
    learned = Model(annotated(doubled, Tensor, x=Tensor), {"x": Tensor(X)})
    assert learned.signature.outputs["result"] == {"type": "array", "dtype": "FP32", "shape": [2, 3]}
    assert np.array_equal(learned(x=X), X * 2)


@pytest.mark.parametrize("form", ["bare", "dict", "list"])
def test_a_function_under_batch_gets_and_returns_tensors(form):
    def doubled(x, y):
        assert isinstance(x, Tensor)
        assert isinstance(y, np.ndarray)
        result = x.cuda() * 2
        return {"bare": result, "dict": {"result": result}, "list": [result]}[form]

    rows = Float32[Tensor, "batch 3"]
    result = dict[str, Tensor] if form == "dict" else rows
    function = batch(annotated(doubled, result, x=rows, y=Float32[np.ndarray, "batch 3"]))
    model = Model(function, {"x": X, "y": X} if form == "dict" else None)
    assert model.signature.passes == "arrays"
    assert model.response(x=X[0], y=X[0])["result"].tolist() == [[0, 2, 4]]


def test_lists_of_tensors_are_batches():
    model = Model(
        batch(annotated(lambda x: [each * 3 for each in x], list[Float32[Tensor, "3"]], x=list[Float32[Tensor, "3"]]))
    )
    assert model(x=X[1]).tolist() == [9, 12, 15]


def test_memory_that_may_not_be_written_is_copied():
    fixed = X.copy()
    fixed.flags.writeable = False
    model = Model(annotated(lambda x: x * 2, Float32[Tensor, "2 3"], x=Float32[Tensor, "2 3"]))
    assert np.array_equal(model(x=fixed), X * 2)


def test_other_libraries_tensors_are_arrays_without_a_copy():
    tensor = Tensor(X)
    assert np.shares_memory(host_array(tensor), X)
    assert host_array(Tensor(X, dtype="torch.bfloat16")).dtype == np.float32
    assert host_array("text") == "text"


# Texts in arrays.


def test_texts_for_an_input_whose_example_was_bytes_are_encoded():
    model = Model(annotated(lambda x: b" ".join(x.tolist()).decode(), x=np.ndarray), {"x": np.array([b"a", b"b"])})
    assert model.signature.inputs["x"] == {"type": "array", "dtype": "BYTES", "shape": [2]}
    for given in np.array(["h\u00e9", "i"]), np.array(["h\u00e9", b"i"], object), ["h\u00e9", "i"]:
        assert model(x=given) == "h\u00e9 i"
    one = Model(lambda requests: [{"y": each["x"]} for each in requests], {"x": np.array([["hi"]])})
    assert one.signature.inputs["x"] == {"type": "array", "dtype": "BYTES", "shape": [1]}
    for given in "h\u00e9", "h\u00e9".encode(), np.array(["h\u00e9"]), ["h\u00e9"]:
        assert one(x=given)["y"].tolist() == ["h\u00e9".encode()]
    assert encode_rows({"dtype": "BYTES", "shape": [-1]}, ["a", b"b"], {}).tolist() == [[b"a"], [b"b"]]


def test_an_array_of_texts_is_encoded_for_a_parameter_of_texts():
    model = Model(annotated(lambda x: x, list[str], x=list[str]))
    assert model(x=np.array(["a", "b"])) == ["a", "b"]
    many = Model(annotated(lambda x: x, str, x=str))
    assert many._codec.arrays({"x": np.array([["a"], ["b"]])}, has_rows=True)["x"].tolist() == [[b"a"], [b"b"]]


def test_outputs_of_texts_are_offered_as_str():
    model = Model(annotated(lambda x: [x], list[str], x=str))
    outputs = model._codec.with_texts({"result": np.array([[b"h\xc3\xa9"]], object), "other": np.array([1])})
    assert outputs["result"].tolist() == [["h\u00e9"]]
    with pytest.raises(ValueError, match="expected text in UTF-8"):
        model._codec.with_texts({"result": np.array([[b"\xff"]], object)})
    assert Model(annotated(lambda x: x, bytes, x=str))._codec.with_texts({"result": np.array([b"a"], object)})[
        "result"
    ].tolist() == [b"a"]
