"""Functions with annotations, served as models and called with Python values."""

import asyncio
import io
import math
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, Field

from pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientValueError,
)
from pytriton.decorators import batch, triton_context
from pytriton.exceptions import (
    ErrorCode,
    PyTritonInvalidOperationError,
    PyTritonRequestError,
    PyTritonValidationError,
    PyTritonWorkerError,
)
from pytriton.inprocess import Triton as InprocessTriton
from pytriton.model_config import ModelConfig, Tensor
from pytriton.signature.schema import Signature
from pytriton.workers import Processes
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.traffic import Gate

pytestmark = pytest.mark.either_proxy


class Tone(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Sentiment:
    label: Tone
    score: float
    words: list[str] = field(default_factory=list)


@dataclass
class Point:
    x: float
    y: float = 0.0


class Order(BaseModel):
    item: str
    count: int = Field(1, ge=1)


def sentiment(text: str, threshold: Annotated[float, Field(ge=0, le=1)] = 0.5, tone: Tone | None = None) -> Sentiment:
    """How a text sounds.

    Args:
        text: Any.
    """
    if text == "fail":
        raise RuntimeError("told to")
    if text == "refuse":
        raise PyTritonRequestError("not this one", ErrorCode.NOT_FOUND)
    return Sentiment(tone or Tone.GOOD, threshold, text.split())


def everything(
    integer: int,
    number: float,
    boolean: bool,
    raw: bytes,
    words: list[str],
    numbers: tuple[float, ...],
    choice: Literal["a", "b"],
    array: NDArray[np.float32],
    point: Point,
    order: Order,
    free: dict,
    half: np.float32 = np.float32(0.5),  # noqa: B008
    pair: tuple[int, str] = (1, "one"),
) -> dict:
    assert type(half) is np.float32
    return {
        "integer": integer,
        "number": number,
        "boolean": boolean,
        "raw": raw,
        "words": words,
        "numbers": numbers,
        "choice": choice,
        "array": array.sum(),
        "point": point,
        "order": order,
        "free": free,
        "pair": pair,
    }


def tell(prompt: str, count: int = 3) -> Iterator[str]:
    for number in range(count):
        if prompt == "fail" and number:
            raise RuntimeError("told to")
        yield f"{prompt} {number}"


async def tell_async(prompt: str, count: int = 3) -> AsyncIterator[Sentiment]:
    for number in range(count):
        await asyncio.sleep(0)
        yield Sentiment(Tone.GOOD, number)


@pytest.fixture(scope="module")
def models(triton):
    triton.bind(sentiment)
    triton.bind(everything, example=EVERYTHING)
    triton.bind("tell", tell)
    triton.bind(tell_async)


EVERYTHING: dict[str, Any] = {
    "integer": -(2**63),
    "number": math.inf,
    "boolean": True,
    "raw": b"\xff\0",
    "words": ["ä", ""],
    "numbers": [1.5, 2.0],
    "choice": "b",
    "array": [[1, 2], [3, 4]],
    "point": {"x": 1},
    "order": {"item": "tea"},
    "free": {"deep": [{"er": None}]},
}


@pytest.mark.usefixtures("models")
def test_values_go_in_and_come_out(url):
    with ModelClient(url, "sentiment") as client:
        assert client.call(text="what a day") == {"label": "good", "score": 0.5, "words": ["what", "a", "day"]}
        assert client.call("näh", 0.25, Tone.BAD) == {"label": "bad", "score": 0.25, "words": ["näh"]}
        assert client.call(text="", tone=None, threshold=1)["score"] == 1.0


@pytest.mark.usefixtures("models")
def test_each_type_survives_the_way_in_and_out(url):
    with ModelClient(url, "everything") as client:
        assert client.call(**{**EVERYTHING, "order": Order(item="tea"), "point": Point(1)}) == {
            **EVERYTHING,
            "raw": "/wA=",  # bytes in JSON
            "array": 10.0,
            "point": {"x": 1.0, "y": 0.0},
            "order": {"item": "tea", "count": 1},
            "pair": [1, "one"],
        }


@pytest.mark.usefixtures("models")
def test_a_model_of_a_typed_function_has_tensors_as_any_other(url):
    with ModelClient(url, "sentiment") as client:
        outputs = client.infer_sample(text=np.array([b"a b"], object), threshold=np.array([0.25]))
        assert {name: array.tolist() for name, array in outputs.items()} == {
            "label": [b"good"],
            "score": [0.25],
            "words": [b"a", b"b"],
        }
        assert client.infer_sample("a")["words"].tolist() == [b"a"]
        rows = client.infer_batch(text=["a", "b"], threshold=np.array([[0.25], [0.5]]))
        assert (rows["score"].tolist(), rows["words"].tolist()) == ([[0.25], [0.5]], [[b"a"], [b"b"]])
        with pytest.raises(PyTritonClientInferenceServerError, match="the same shape in all rows of a request"):
            client.infer_batch(text=["a", "b c"])


@pytest.mark.usefixtures("models")
def test_the_types_are_in_the_models_configuration(url):
    with ModelClient(url, "sentiment") as client:
        signature = Signature.of(client.model_config)
    assert signature.description == "How a text sounds."
    assert signature.inputs["text"] == {"type": "string", "description": "Any."}
    assert signature.inputs["threshold"] == {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5}
    assert signature.outputs["label"] == {"type": "string", "enum": ["good", "bad"]}


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": 3}, r'model \'sentiment\': \["text"\]: expected a string, got 3'),
        ({"text": "a", "tone": "ugly"}, r'\["tone"\]: expected one of "good", "bad", got "ugly"'),
        ({"text": 3, "threshold": 2}, r'\["text"\]: .*; \["threshold"\]: expected a number of at least 0'),
        ({"text": "a", "unknown": 1}, "has no input 'unknown'"),
        ({}, "no input was given"),
        ({"tone": "bad"}, "input 'text' of model 'sentiment' is missing"),
    ],
)
def test_a_client_sends_nothing_that_does_not_fit(url, values, message):
    with (
        ModelClient(url, "sentiment") as client,
        pytest.raises((PyTritonClientInputError, PyTritonClientValueError), match=message),
    ):
        client.call(**values)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"text": [b"\xff"]}, r"\[\"text\"\]: expected text in UTF-8, got b'\\xff'"),
        ({"text": [b"a"], "tone": [b"ugly"]}, r'\["tone"\]: expected one of "good", "bad", got "ugly"'),
        ({"text": [b"refuse"]}, "not this one"),
        ({"text": [b"fail"]}, "RuntimeError: told to"),
    ],
)
def test_the_worker_checks_what_other_clients_send(url, arrays, message):
    with (
        ModelClient(url, "sentiment") as client,
        pytest.raises(PyTritonClientInferenceServerError, match=message) as caught,
    ):
        client.infer_sample(**{name: np.array(array, object) for name, array in arrays.items()})
    status = {"fail": "500|INTERNAL", "refuse": "404|NOT_FOUND"}.get(arrays["text"][0].decode("latin"), "400|INVALID")
    assert any(code in str(caught.value) for code in status.split("|"))


def json_row(text: str) -> Any:
    return np.array([text.encode()], object)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            '{"item": 3, "count": 0}',
            r'\["order", "item"\]: .*; \["order", "count"\]: expected an integer of at least',
        ),
        ("{", r'\["order"\]: expected JSON'),
        ('{"count": 1}', r'\["order", "item"\]: expected a string, got nothing'),
    ],
)
def test_fields_of_an_object_are_checked_one_by_one(triton, url, order, message):
    def buy(order: Order) -> int:
        return order.count

    triton.bind("buy", buy, replace="buy" in triton_names(triton))
    with ModelClient(url, "buy") as client:
        assert client.call(order={"item": "tea", "count": 2}) == 2
        with pytest.raises(PyTritonClientInferenceServerError, match=message):
            client.infer_sample(order=json_row(order))


def triton_names(triton) -> set[str]:
    return {statistics.name for statistics in triton.statistics()}


def test_one_request_fails_and_those_merged_with_it_do_not(triton, url):
    gate, seen = Gate(), []

    def measure(text: str, sizes: list[float] = ()) -> int:  # type: ignore[assignment]
        seen.append(text)
        gate.wait()
        if text == "fail":
            raise RuntimeError("told to")
        return len(text) + len(sizes)

    triton.bind("measure", measure, config=ModelConfig(max_batch_size=16), replace="measure" in triton_names(triton))
    with FuturesModelClient(url, "measure") as client:
        first = client.call("first")
        wait_for(lambda: seen, "the first call")
        good, fails = client.call("good"), client.call("fail")
        rows = client.infer_batch(text=["a", "bb", "ccc"])
        wrong = client.infer_sample(text=np.array([b"\xff"], object))
        wrong_rows = client.infer_batch(text=np.array([[b"row"], [b"\xff"]], object))
        sizes = client.call("sizes", [1.0, 2.0])
        gate.open()
        assert (first.result(DEADLINE_S), good.result(DEADLINE_S), sizes.result(DEADLINE_S)) == (5, 4, 7)
        assert rows.result(DEADLINE_S)["result"].tolist() == [[1], [2], [3]]
        with pytest.raises(PyTritonClientInferenceServerError, match="told to"):
            fails.result(DEADLINE_S)
        with pytest.raises(PyTritonClientInferenceServerError, match=r'\["text"\]: expected text in UTF-8'):
            wrong.result(DEADLINE_S)
        with pytest.raises(PyTritonClientInferenceServerError, match=r'\[1, "text"\]: expected text in UTF-8'):
            wrong_rows.result(DEADLINE_S)
    assert sorted(seen) == ["a", "bb", "ccc", "fail", "first", "good", "row", "sizes"]  # each once
    (statistics,) = triton.statistics("measure")
    assert max(statistics.batches) > 1


def test_rows_of_a_coroutine_function_run_at_the_same_time(triton, url):
    barrier = asyncio.Barrier(2) if hasattr(asyncio, "Barrier") else None
    if barrier is None:
        pytest.skip("asyncio has no barriers here")

    async def meet(x: int) -> int:
        if x == 3:
            raise RuntimeError("told to")
        await asyncio.wait_for(barrier.wait(), DEADLINE_S)
        return -x

    triton.bind("meet", meet, replace="meet" in triton_names(triton))
    with ModelClient(url, "meet") as client:
        assert client.infer_batch(x=[1, 2])["result"].tolist() == [[-1], [-2]]
        with pytest.raises(PyTritonClientInferenceServerError, match="told to"):
            client.call(3)


@pytest.mark.usefixtures("models")
def test_a_stream_gives_values_as_they_come(grpc_url):
    with DecoupledModelClient(grpc_url, "tell") as client:
        assert list(client.call(prompt="once", count=2)) == ["once 0", "once 1"]
        assert list(client.call("none", 0)) == []
        values = client.call("fail")
        assert next(values) == "fail 0"
        with pytest.raises(PyTritonClientInferenceServerError, match="told to"):
            next(values)
        values = client.call("stopped", 1000)
        assert next(values) == "stopped 0"
        values.close()
        assert list(client.call("again", 1)) == ["again 0"]
        with pytest.raises(PyTritonClientInputError, match=r'\["count"\]: expected an integer'):
            client.call("once", "3")
    with DecoupledModelClient(grpc_url, "tell_async") as client:
        assert [value["score"] for value in client.call("once")] == [0.0, 1.0, 2.0]


@pytest.mark.usefixtures("models")
def test_the_client_for_asyncio_calls_typed_functions(grpc_url):
    async def calls() -> list[Any]:
        async with (
            AsyncioModelClient(grpc_url, "sentiment") as client,
            AsyncioDecoupledModelClient(grpc_url, "tell") as stream,
        ):
            one = await client.call(text="a")
            return [one["score"], [value async for value in stream.call("a", 2)]]

    assert asyncio.run(calls()) == [0.5, ["a 0", "a 1"]]


def texts_of(outputs: dict[str, np.ndarray]) -> list[Any]:
    return [outputs["result"].dtype, *outputs["result"].ravel().tolist()]


@pytest.mark.usefixtures("models")
def test_texts_are_offered_as_str(triton, url, grpc_url):
    name = f"repeated-{url[:4]}"
    triton.bind(name, lambda text, times: text * times, example={"text": "a", "times": 1})
    rows = {"text": np.array([["h\u00e9"], ["a"]]), "times": [1, 2]}
    with ModelClient(url, name) as client:
        texts = client.with_options(text_outputs=True)
        assert texts_of(client.infer_batch(**rows)) == [object, b"h\xc3\xa9", b"aa"]
        assert texts_of(texts.infer_batch(**rows)) == [object, "h\u00e9", "aa"]
        assert texts_of(texts.with_options(split_batches=True).infer_batch(**rows)) == [object, "h\u00e9", "aa"]
        assert texts_of(texts.infer_sample("a", 3)) == [object, "aaa"]
        assert texts.call("a", 3) == "aaa"
    with DecoupledModelClient(grpc_url, "tell") as streaming:
        texts = streaming.with_options(text_outputs=True)
        assert [texts_of(each)[1] for each in texts.infer_sample("a", 2)] == ["a 0", "a 1"]
        assert [*texts.call("a", 2)] == ["a 0", "a 1"]

    async def asynchronously() -> list[Any]:
        async with (
            AsyncioModelClient(url, name) as client,
            AsyncioDecoupledModelClient(grpc_url, "tell") as streaming,
        ):
            found = texts_of(await client.with_options(text_outputs=True).infer_batch(**rows))[1:]
            texts = streaming.with_options(text_outputs=True)
            found += [texts_of(each)[1] async for each in texts.infer_sample("a", 1)]
            return found + [each async for each in texts.call("a", 1)]

    assert asyncio.run(asynchronously()) == ["h\u00e9", "aa", "a 0", "a 0"]


def test_dates_tables_and_decimal_numbers_are_served(triton, url):
    pandas = pytest.importorskip("pandas")

    due_name, summed_name = f"due-{url[:4]}", f"summed-{url[:4]}"

    @triton.model(name=due_name)
    def due(day: date, days: int, price: Decimal) -> date:
        assert price == Decimal("1.50")
        return day + timedelta(days)

    def summed(table: Any) -> Any:
        return table.groupby("name", as_index=False).sum()

    summed.__annotations__ = {"table": pandas.DataFrame, "return": pandas.DataFrame}
    triton.bind(summed_name, summed)
    with ModelClient(url, due_name) as client, ModelClient(url, summed_name) as sums:
        assert (
            client.call(date(2026, 2, 28), 1, Decimal("1.50")) == client.call("2026-02-28", 1, "1.50") == "2026-03-01"
        )
        with pytest.raises(PyTritonClientInferenceServerError, match="expected a valid value, got"):
            client.call("2026-02-30", 1, "1.50")
        table = pandas.DataFrame({"name": ["a", "b", "a"], "n": [1, 2, 3]})
        assert sums.call(table) == [{"name": "a", "n": 4}, {"name": "b", "n": 2}]


@pytest.mark.usefixtures("models")
def test_a_view_with_other_options_calls_too(url):
    with FuturesModelClient(url, "sentiment") as client:
        assert client.with_options(priority=0).call("a").result(DEADLINE_S)["score"] == 0.5


def test_arrays_under_batch_come_in_one_call(triton, url):
    jaxtyping = pytest.importorskip("jaxtyping")

    def scaled(x, scale=None):
        return x * 2

    scaled.__annotations__ = {
        "x": jaxtyping.Float32[np.ndarray, "batch 3"],
        "scale": jaxtyping.Float32[np.ndarray, "batch"] | None,
        "return": jaxtyping.Float32[np.ndarray, "batch 3"],
    }
    name = f"scaled-{url[:4]}"
    triton.bind(name, batch(scaled))
    with ModelClient(url, name) as client:
        assert client.call(x=[1, 2, 3]).tolist() == [2, 4, 6]
        assert client.call(np.ones(3, np.float32)).tolist() == [2, 2, 2]
        assert client.infer_batch(x=np.ones((2, 3), np.float32))["result"].shape == (2, 3)
        with pytest.raises(PyTritonClientInputError, match=r'\["x"\]: expected 3 numbers, got 2'):
            client.call(x=[1, 2])


def test_images_travel_as_files(triton, url):
    def shrink(image: Image.Image) -> Image.Image:
        return image.resize((2, 1))

    triton.bind("shrink", shrink, replace="shrink" in triton_names(triton))
    picture = Image.new("RGB", (8, 4), "red")
    with ModelClient(url, "shrink") as client:
        file = client.call(image=picture)
        assert Image.open(io.BytesIO(file)).size == (2, 1)
        with pytest.raises(PyTritonClientInferenceServerError, match=r'\["image"\]: expected a valid value'):
            client.call(image=b"no image")


def test_explicit_tensors_win_over_annotations(triton, url):
    def listed(requests: list[Any]) -> list[dict[str, Any]]:
        return [{"y": request["x"]} for request in requests]

    @batch
    def hinted(x: float) -> dict:
        assert isinstance(x, np.ndarray)
        return {"y": x}

    x, y = [Tensor(name="x", shape=(1,), dtype=np.float64)], [Tensor(name="y", shape=(1,), dtype=np.float64)]
    for number, function in enumerate([listed, hinted]):
        name = f"explicit-{number}-{url[:4]}"
        triton.bind(name, function, x, y)
        with ModelClient(url, name) as client:
            assert client.infer_sample(x=np.array([3.0]))["y"] == [3]
            with pytest.raises(PyTritonClientValueError, match="has tensors, and no typed function"):
                client.call(x=np.array([3.0]))


def test_functions_without_parameters_and_without_arguments_are_called(triton, url):
    def constant() -> str:
        return "pong"

    def defaults(x: int = 3, y: list[str] | None = None) -> int | None:
        return None if y else x

    for function in (constant, defaults):
        triton.bind(f"{function.__name__}-{url[:4]}", function)
    with ModelClient(url, f"constant-{url[:4]}") as client:
        assert client.call() == "pong"
    with ModelClient(url, f"defaults-{url[:4]}") as client:
        assert (client.call(), client.call(4), client.call(y=["a"])) == (3, 4, None)


def test_an_absent_input_is_none_or_the_default(triton, url):
    def shown(required: int, nullable: int | None) -> list[str]:
        return [str(required), str(nullable)]

    def positional(x: int, y: int = 2, z: int = 3, /) -> list[int]:
        return [x, y, z]

    suffix = url[:4]
    triton.bind(f"shown-{suffix}", shown, example={"required": 1})
    triton.bind(f"positional-{suffix}", positional, example={"x": 1, "z": 4})
    with ModelClient(url, f"shown-{suffix}") as client:
        assert client.call(required=1) == ["1", "None"]
        assert client.call(required=1, nullable=2) == ["1", "2"]
    with ModelClient(url, f"positional-{suffix}") as client:
        assert client.call(x=1, z=5) == [1, 2, 5]


def test_the_decorator_binds_and_leaves_the_function_alone(triton, url):
    suffix = url[:4]

    @triton.model(name=f"plus-{suffix}", config=ModelConfig(batching=False))
    def plus(x: int, /, y: int = 1) -> int:
        return x + y

    @triton.model(name=f"named-{suffix}")
    @triton_context
    def named(x: int, triton_context: Any) -> str:
        return triton_context.model_configs[named].model_name

    assert plus(1) == 2
    with ModelClient(url, f"plus-{suffix}") as client:
        assert client.call(1, 2) == 3
    with ModelClient(url, f"named-{suffix}") as client:
        assert client.call(1) == f"named-{suffix}"
    with pytest.raises(PyTritonValidationError, match="has no infer_func"):
        triton.bind("nothing")


def test_the_bare_decorator_takes_the_functions_name(triton, url):
    @triton.model
    def shout(text: str) -> str:
        return text.upper()

    try:
        with ModelClient(url, "shout") as client:
            assert client.call("ä") == "Ä"
    finally:
        triton.unbind("shout")


def test_another_function_of_the_same_signature_takes_over(triton, url):
    def double(x: int) -> int:
        return 2 * x

    def triple(x: int) -> int:
        return 3 * x

    def other(x: str) -> int:
        return 0

    def renamed(y: int) -> int:
        return y

    name = f"rebound-{url[:4]}"
    triton.bind(name, double)
    with ModelClient(url, name) as client:
        assert client.call(2) == 4
        triton.rebind(name, triple)
        assert client.call(2) == 6
        for wrong in (other, renamed, tell):
            with pytest.raises(PyTritonValidationError, match=r"another signature|answers with"):
                triton.rebind(name, wrong)
        assert client.call(2) == 6


def test_several_instances_run_at_the_same_time(triton, url):
    barrier = threading.Barrier(2)

    def meet(x: int) -> int:
        barrier.wait(DEADLINE_S)
        return x

    name = f"instances-{url[:4]}"
    triton.bind(name, [meet, meet], config=ModelConfig(max_batch_size=1))
    with FuturesModelClient(url, name) as client:
        assert [future.result(DEADLINE_S) for future in [client.call(1), client.call(2)]] == [1, 2]


def test_workers_tell_what_their_callable_takes(triton, url):
    def factory() -> Any:
        def classify(text: str, threshold: float = 0.5) -> Literal["yes", "no"]:
            """Classify a text."""
            return "yes" if len(text) > threshold else "no"

        return classify

    def another() -> Any:
        def classify(text: str, threshold: float = 0.5) -> Literal["yes", "no"]:
            return "no"

        return classify

    name = f"workers-{url[:4]}"
    triton.bind(name, Processes(factory, count=1), example={"text": "abc"})
    with ModelClient(url, name) as client:
        assert client.call("what a day") == "yes"
        assert Signature.of(client.model_config).description == "Classify a text."
        with pytest.raises(PyTritonClientInferenceServerError, match="UTF-8"):
            client.infer_sample(text=np.array([b"\xff"], object))
        triton.rebind(name, Processes(another, count=1))
        assert client.call("what a day") == "no"


def test_bind_says_what_is_wrong_with_the_callable_of_workers(triton):
    def untyped() -> Any:
        return lambda x, y: x

    def failing() -> Any:
        raise RuntimeError("no model here")

    with pytest.raises(PyTritonValidationError, match="parameter 'x' has no annotation"):
        triton.bind("untyped", Processes(untyped, count=1))
    with pytest.raises(PyTritonWorkerError, match="no model here"):
        triton.bind("failing", Processes(failing, count=1))
    with pytest.raises(PyTritonValidationError, match="Processes have no name"):
        triton.bind(Processes(untyped, count=1))
    with pytest.raises(PyTritonInvalidOperationError):
        triton.unbind("untyped")


def test_typed_functions_are_served_within_the_process():
    with InprocessTriton() as triton:
        triton.bind(sentiment)
        triton.bind(tell)
        with triton.client("sentiment") as client:
            assert client.call(text="what a day")["words"] == ["what", "a", "day"]
            with pytest.raises(PyTritonClientInputError, match="expected a string"):
                client.call(text=3)
