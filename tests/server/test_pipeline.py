"""Pipelines, which the server runs as ensembles."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pytriton import Pipeline, Step, inprocess
from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch, sample
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from tests.server.own_server import address
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy


@dataclass
class Parts:
    first: str
    rest: str


def parts(text: str) -> Parts:
    first, _, rest = text.partition(" ")
    return Parts(first, rest)


def shout(text: str) -> str:
    return text.upper()


def count(text: str) -> int:
    return len(text)


def join(first: str, rest: str) -> str:
    return f"{rest}, {first}"


def tell(text: str) -> Iterator[str]:
    yield text


@batch
def double(x: Any) -> dict[str, Any]:
    return {"y": 2 * x}


@batch
def both(y: Any, x: Any) -> dict[str, Any]:
    return {"sum": y + x, "product": y * x}


@sample
def alone(x: Any) -> dict[str, Any]:
    return {"y": x}


def floats(*names: str) -> list[Tensor]:
    return [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in names]


@pytest.fixture(scope="module", autouse=True)
def steps(triton):
    for function in (parts, shout, count, join, tell):
        triton.bind(function)
    triton.bind("double", double, floats("x"), floats("y"), config=ModelConfig(max_batch_size=8))
    triton.bind("both", both, floats("y", "x"), floats("sum", "product"), config=ModelConfig(max_batch_size=4))
    triton.bind("alone", alone, floats("x"), floats("y"), config=ModelConfig(batching=False))


def test_a_step_gets_the_only_value_of_the_one_before(composed):
    assert composed(Pipeline("shout", "count")).call("four") == 4


def test_values_are_found_by_name(composed):
    client = composed(Pipeline("parts", Step("shout", {"text": "first"}, {"result": "first"}), "join"))
    assert client.call("ada lovelace") == "lovelace, ADA"


def test_steps_branch_and_outputs_are_chosen(composed):
    loud, length = Step("shout", outputs={"result": "loud"}), Step("count", {"text": "text"}, {"result": "length"})
    client = composed(Pipeline(loud, length, outputs=["loud", "length"]))
    assert client.call("abc") == {"loud": "ABC", "length": 3}


def test_a_value_that_nothing_needs_is_dropped_and_a_step_without_others_is_refused(composed):
    rest = Step("shout", {"text": "rest"})
    assert composed(Pipeline("parts", rest)).call("ada lovelace") == "LOVELACE"
    with pytest.raises(PyTritonValidationError, match="no step takes what step 1, shout, makes"):
        composed(Pipeline(Step("shout", outputs={"result": "loud"}), Step("parts", {"text": "text"})))


def test_an_input_of_a_request_may_be_used_by_several_steps(composed):
    client = composed(Pipeline("double", "both"))
    x = np.arange(3, dtype=np.float32)[np.newaxis]
    outputs = client.infer_batch(x)
    np.testing.assert_array_equal(outputs["sum"], 3 * x)
    np.testing.assert_array_equal(outputs["product"], 2 * x * x)
    assert client.model_config.max_batch_size == 4  # the smallest of the steps


def test_an_error_of_a_step_is_that_of_the_pipeline(triton, composed):
    def refuse(result: str) -> str:
        raise ValueError("not this one")

    triton.bind("refuse", refuse, replace=True)
    with pytest.raises(PyTritonClientInferenceServerError, match="not this one"):
        composed(Pipeline("shout", "refuse")).call("a")


def test_a_pipeline_is_a_step_of_another_one(triton, composed):
    triton.bind("inner", Pipeline("shout", outputs=["result"]))
    assert composed(Pipeline("inner", "count")).call("abc") == 3
    triton.unbind("inner")


def test_requests_of_many_clients_are_answered(composed, url):
    client = composed(Pipeline("shout", "count"))
    answers = []

    def call(number: int) -> None:
        with ModelClient(url, "composed") as own:
            answers.append(own.call("x" * number) == number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 24
    assert client.call("x") == 1


def test_a_server_in_this_process_runs_pipelines():
    with inprocess.Triton() as triton:
        for function in (shout, count):
            triton.bind(function)
        triton.bind("piped", Pipeline("shout", "count"))
        assert triton.client("piped").call("four") == 4


def test_a_server_that_is_launched_again_has_the_pipeline(free_config):
    with Triton(config=free_config) as triton:
        for function in (shout, count):
            triton.bind(function)
        triton.bind("piped", Pipeline("shout", "count"))
        pid = triton._server.pid()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: triton.is_alive() and triton._server.pid() not in (None, pid), "another server")
        with ModelClient(address(free_config, "http"), "piped", init_timeout_s=60.0) as client:
            assert client.call("four") == 4


def test_the_graph_names_models_and_values(triton, composed):
    pipeline = Pipeline("shout", "count")
    composed(pipeline)
    graph = pipeline.mermaid()
    assert graph.startswith("flowchart LR")
    for text in (
        'in_0(["text"])',
        'step_0["shout"]',
        'step_1["count"]',
        'out_0(["result"])',
        'in_0 -->|"text"| step_0',
        'step_0 -->|"result"| step_1',
    ):
        assert text in graph


def test_a_pipeline_cannot_get_another_callable(triton, composed):
    composed(Pipeline("shout"))
    with pytest.raises(PyTritonInvalidOperationError, match="is a Pipeline"):
        triton.rebind("composed", shout)


@pytest.mark.parametrize(
    ("pipeline", "match"),
    [
        (Pipeline("shout", "missing"), "'missing', which is not bound"),
        (Pipeline("tell"), "streams"),
        (Pipeline("double", "alone"), "have a batch axis and others have none"),
        (Pipeline("count", "shout"), "put a model between them"),
        (Pipeline(Step("shout", {"words": "text"})), "names inputs 'words'"),
        (Pipeline(Step("shout", outputs={"words": "text"})), "names outputs 'words'"),
        (Pipeline("shout", outputs=["loud"]), "makes 'loud'"),
        (Pipeline(Step("shout", outputs={"result": "text"})), "is an input and an output"),
    ],
)
def test_what_does_not_fit_is_refused_at_bind(triton, pipeline, match):
    with pytest.raises(PyTritonValidationError, match=match):
        triton.bind("refused", pipeline)


@pytest.mark.parametrize("arguments", [(), (3,), (shout,)])
def test_steps_are_names(arguments):
    with pytest.raises(PyTritonBadParameterError, match="names of models"):
        Pipeline(*arguments)
