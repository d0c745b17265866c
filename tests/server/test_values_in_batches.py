"""Functions under ``@batch`` that get lists of values: one call for the rows of all requests that wait."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, Field

from pytriton.client import AsyncioModelClient, DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch, triton_context
from pytriton.inprocess import Triton as InprocessTriton
from pytriton.model_config import ModelConfig
from pytriton.workers import Processes
from tests.server.processes import DEADLINE_S
from tests.server.rest.ways import WAYS, app_of
from tests.server.traffic import batches_of

pytestmark = pytest.mark.either_proxy


class Tone(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Verdict:
    tone: Tone
    words: int


class Flat(BaseModel):
    rooms: int = Field(ge=1)
    area_m2: float


def waiting(rows: int) -> ModelConfig:
    """The configuration of a model whose batches have so many rows."""
    return ModelConfig(max_batch_size=rows, batcher=batches_of(rows))


def test_texts_of_waiting_requests_are_one_call_with_one_list(triton, url):
    calls = []

    @batch
    def mood(text: list[str], shout: list[bool] = ()) -> list[Verdict]:
        """How texts sound."""
        calls.append((text, shout))
        return [Verdict(Tone.GOOD if "good" in each else Tone.BAD, len(each.split())) for each in text]

    name = f"mood-{url[:4]}"
    triton.bind(name, mood, config=waiting(3))
    with FuturesModelClient(url, name) as client:
        futures = [client.call(text=text) for text in ("good day", "bad", "a good one")]
        assert [future.result(DEADLINE_S) for future in futures] == [
            {"tone": "good", "words": 2},
            {"tone": "bad", "words": 1},
            {"tone": "good", "words": 3},
        ]
    assert [(sorted(texts), shout) for texts, shout in calls] == [(["a good one", "bad", "good day"], ())]
    with ModelClient(url, name) as client:
        answers = client.infer_batch(text=["good", "bad", "good good"], shout=[True, False, True])
        assert answers["words"].tolist() == [[1], [1], [2]]
    assert calls[1] == (["good", "bad", "good good"], [True, False, True])


def test_records_are_lists_of_objects(triton, url):
    seen: list[Any] = []

    @batch
    def rent(flat: Sequence[Flat]) -> list[float]:
        seen.append(flat)
        return [each.rooms * each.area_m2 for each in flat]

    name = f"rent-{url[:4]}"
    triton.bind(name, rent, config=waiting(2))
    with FuturesModelClient(url, name) as client:
        futures = [client.call(flat={"rooms": rooms, "area_m2": 10}) for rooms in (1, 2)]
        assert sorted(future.result(DEADLINE_S) for future in futures) == [10.0, 20.0]
    ((one, other),) = seen
    assert {type(one), type(other)} == {Flat}


def test_a_parameter_that_is_no_list_is_one_value_and_separates_calls(triton, url):
    calls = []

    @batch
    def scaled(x: list[float], factor: int = 1) -> list[float]:
        calls.append((sorted(x), factor))
        return [each * factor for each in x]

    name = f"scaled-{url[:4]}"
    triton.bind(name, scaled, config=waiting(4))
    with FuturesModelClient(url, name) as client:
        futures = [client.call(x=x, factor=factor) for x, factor in ((1.0, 2), (2.0, 3), (3.0, 2), (4.0, 3))]
        assert [future.result(DEADLINE_S) for future in futures] == [2.0, 6.0, 6.0, 12.0]
    assert sorted(calls) == [([1.0, 3.0], 2), ([2.0, 4.0], 3)]


def test_an_exception_in_the_list_of_results_fails_that_row_alone(triton, url):
    calls = []

    @batch
    def checked(text: list[str]) -> list[str]:
        calls.append(text)
        return [ValueError("not this one") if each == "bad" else each.upper() for each in text]  # type: ignore[misc]

    name = f"checked-{url[:4]}"
    triton.bind(name, checked, config=waiting(3))
    with FuturesModelClient(url, name) as client:
        good, bad, other = (client.call(text=text) for text in ("good", "bad", "other"))
        assert (good.result(DEADLINE_S), other.result(DEADLINE_S)) == ("GOOD", "OTHER")
        with pytest.raises(PyTritonClientInferenceServerError, match="not this one"):
            bad.result(DEADLINE_S)
    assert [sorted(texts) for texts in calls] == [["bad", "good", "other"]]


def test_a_request_that_does_not_fit_is_left_out_of_the_call(triton, url):
    calls = []

    @batch
    def upper(text: list[str]) -> list[str]:
        calls.append(sorted(text))
        return [each.upper() for each in text]

    name = f"upper-{url[:4]}"
    triton.bind(name, upper, config=waiting(2))
    with FuturesModelClient(url, name) as client:
        wrong, right = client.infer_sample(text=np.array([b"\xff"], object)), client.call(text="right")
        assert right.result(DEADLINE_S) == "RIGHT"
        with pytest.raises(PyTritonClientInferenceServerError, match=r'\["text"\]: expected text in UTF-8'):
            wrong.result(DEADLINE_S)
    assert calls == [["right"]]


def test_a_wrong_number_of_results_and_an_exception_are_told(triton, url):
    @batch
    def short(text: list[str]) -> list[str]:
        if text[0] == "raise":
            raise RuntimeError("told to")
        return "text" if text[0] == "text" else text[1:]  # type: ignore[return-value]

    name = f"short-{url[:4]}"
    triton.bind(name, short)
    with ModelClient(url, name) as client:
        with pytest.raises(
            PyTritonClientInferenceServerError, match="returned 1 values for 2 rows; return one per row"
        ):
            client.infer_batch(text=["a", "b"])
        with pytest.raises(PyTritonClientInferenceServerError, match="returned str for 1 rows; return a list"):
            client.call(text="text")
        with pytest.raises(PyTritonClientInferenceServerError, match="told to"):
            client.call(text="raise")


def test_a_merged_call_that_fails_is_made_again_for_each_request(triton, url):
    @batch
    def picky(text: list[str]) -> list[str]:
        if "bad" in text:
            raise RuntimeError("told to")
        return text

    name = f"picky-{url[:4]}"
    triton.bind(name, picky, config=waiting(2))
    with FuturesModelClient(url, name) as client:
        good, bad = client.call(text="good"), client.call(text="bad")
        assert good.result(DEADLINE_S) == "good"
        with pytest.raises(PyTritonClientInferenceServerError, match="told to"):
            bad.result(DEADLINE_S)


def test_a_result_may_be_one_array_with_a_row_for_each(triton, url):
    jaxtyping = pytest.importorskip("jaxtyping")

    def embed(text):
        return np.array([[len(each), 1] for each in text], np.float32)

    embed.__annotations__ = {"text": list[str], "return": jaxtyping.Float32[np.ndarray, "batch 2"]}
    name = f"embed-{url[:4]}"
    triton.bind(name, batch(embed))
    with ModelClient(url, name) as client:
        assert client.call(text="four").tolist() == [4, 1]
        assert client.infer_batch(text=["a", "bb"])["result"].tolist() == [[1, 1], [2, 1]]


def test_coroutine_functions_get_lists(triton, url):
    @batch
    async def upper(text: list[str]) -> list[str]:
        await asyncio.sleep(0)
        return [each.upper() for each in text]

    name = f"coroutine-{url[:4]}"
    triton.bind(name, upper)

    async def calls() -> list[Any]:
        async with AsyncioModelClient(url, name) as client:
            return await asyncio.gather(*(client.call(text=text) for text in "abc"))

    assert asyncio.run(calls()) == ["A", "B", "C"]


@pytest.mark.parametrize("is_async", [False, True], ids=["generator", "async generator"])
def test_generators_yield_a_list_with_a_value_for_each_row(triton, grpc_url, is_async):
    @batch
    def count(word: list[str], times: int = 2) -> Iterator[list[str]]:
        for number in range(times):
            yield [f"{each} {number}" for each in word]

    @batch
    async def count_async(word: list[str], times: int = 2) -> AsyncIterator[list[str]]:
        for number in range(times):
            yield [f"{each} {number}" for each in word]

    name = f"count-{is_async}"
    triton.bind(name, count_async if is_async else count, config=waiting(2))

    def values(word: str) -> list[str]:
        with DecoupledModelClient(grpc_url, name) as client:
            return list(client.call(word=word))

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(values, ("a", "b"))) == [["a 0", "a 1"], ["b 0", "b 1"]]


def test_methods_objects_and_decorators_above_are_served(triton, url):
    class Encoder:
        @batch
        def __call__(self, text: list[str]) -> list[int]:
            return [len(each) for each in text]

        @triton_context
        @batch
        def method(self, text: list[str], **kwargs: Any) -> list[int]:
            assert "triton_context" in kwargs
            return [-len(each) for each in text]

    for function, sign in ((Encoder(), 1), (Encoder().method, -1)):
        name = f"encoder-{sign}-{url[:4]}"
        triton.bind(name, function)
        with ModelClient(url, name) as client:
            assert client.call(text="four") == 4 * sign


def test_worker_processes_get_lists(triton, url):
    def factory() -> Any:
        @batch
        def upper(text: list[str]) -> list[str]:
            return [each.upper() for each in text]

        return upper

    name = f"processes-{url[:4]}"
    triton.bind(name, Processes(factory, count=1))
    with ModelClient(url, name) as client:
        assert client.call(text="a") == "A"
        assert client.infer_batch(text=["b", "c"])["result"].tolist() == [[b"B"], [b"C"]]


def test_functions_of_lists_are_served_within_the_process():
    @batch
    def upper(text: list[str]) -> list[str]:
        return [each.upper() for each in text]

    with InprocessTriton() as triton:
        triton.bind(upper)
        with triton.client("upper") as client:
            assert client.call(text="a") == "A"


@pytest.mark.parametrize("way", WAYS)
def test_the_http_api_takes_a_value_or_instances(way):
    calls = []

    @batch
    def mood(text: list[str]) -> list[Verdict]:
        calls.append(text)
        return [Verdict(Tone.GOOD, len(each.split())) for each in text]

    with app_of(way) as app:
        app.triton.bind(mood)
        assert app.predict("mood", {"text": "a day"}) == {"tone": "good", "words": 2}
        both = {"instances": [{"text": "a"}, {"text": "b c"}]}
        assert [each["words"] for each in app.predict("mood", both)["predictions"]] == [1, 2]
    assert calls == [["a day"], ["a", "b c"]]
