"""A failing callable: what its clients and the log get to know, and that the model keeps serving."""

import asyncio
import logging
import re

import numpy as np
import pytest

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonRuntimeError
from pytriton.workers import Processes
from tests.server.arrays import assert_same, filled


class OddError(Exception):
    """Its text is not available."""

    def __str__(self):
        raise ValueError("no text")


class Raiser:
    """Raises what the test chooses, once; then doubles.

    Args:
        bind: The fixture.
        form: Name of the method that is bound.
        options: Of bind.
    """

    def __init__(self, bind, form, **options):
        self.error = None
        self.model = bind(getattr(self, form), **options)

    def of(self, x):
        error, self.error = self.error, None
        if error is not None:
            raise error
        return x * 2

    def plain(self, requests):
        return [{"y": self.of(request["x"])} for request in requests]

    @batch
    def batch(self, x):
        return [self.of(x)]

    async def coroutine(self, requests):
        await asyncio.sleep(0)
        return self.plain(requests)

    async def async_generator(self, requests):
        yield self.plain(requests)


FORMS = ["plain", "batch", "coroutine", "async_generator"]


@pytest.fixture(scope="module", params=FORMS)
def raiser(bind, request):
    return Raiser(bind, request.param)


def failure_of(traffic, model, x=None):
    """The text that a client gets."""
    with pytest.raises(PyTritonClientInferenceServerError) as caught:
        traffic.infer(model, filled(1) if x is None else x)
    return str(caught.value)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a wrong value"), "ValueError: a wrong value"),
        (PyTritonRuntimeError("misused"), "PyTritonRuntimeError: misused"),
        (KeyError("name"), "KeyError: 'name'"),
        (RuntimeError(), "RuntimeError"),
        (RuntimeError("zażółć ☃ \U0001f600"), "RuntimeError: zażółć ☃ \U0001f600"),
        (RuntimeError("nul \0 and \ud800 lone"), "RuntimeError: nul"),
        (RuntimeError("long " * 30_000), "RuntimeError: long long"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt("pressed"), "KeyboardInterrupt: pressed"),
        (asyncio.CancelledError("given up"), "CancelledError: given up"),
        (MemoryError("no room"), "MemoryError: no room"),
        (OddError(), "OddError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_exception_reaches_the_client_as_class_and_message_and_the_model_keeps_serving(
    raiser, traffic, caplog, error, text
):
    caplog.set_level(logging.CRITICAL, "pytriton")  # pytest-xdist cannot send a log with a lone surrogate
    raiser.error = error
    assert text in failure_of(traffic, raiser.model)
    assert_same(traffic.infer(raiser.model, filled(4))["y"], filled(8))


@pytest.mark.parametrize("error", [StopIteration("early"), GeneratorExit("closed"), StopAsyncIteration("early")])
def test_exceptions_that_python_itself_uses_are_errors_too(raiser, traffic, error):
    raiser.error = error
    failure_of(traffic, raiser.model)
    assert_same(traffic.infer(raiser.model, filled(4))["y"], filled(8))


@pytest.mark.parametrize("form", FORMS)
def test_the_traceback_stays_in_the_log(bind, traffic, caplog, form):
    raiser = Raiser(bind, form)
    raiser.error = ValueError("a wrong value")
    with caplog.at_level(logging.WARNING, "pytriton"):
        text = failure_of(traffic, raiser.model)
    assert "Traceback" not in text
    assert ".py" not in text
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.WARNING
    assert raiser.model in record.getMessage()
    assert "in of" in caplog.text
    assert "ValueError: a wrong value" in caplog.text


def test_clients_get_the_traceback_where_the_model_says_so(bind, traffic):
    raiser = Raiser(bind, "plain", send_traceback=True)
    raiser.error = ValueError("a wrong value")
    text = failure_of(traffic, raiser.model)
    assert "Traceback" in text
    assert "in of" in text
    assert "ValueError: a wrong value" in text


def test_errors_in_a_row_do_not_wear_the_model_out(bind, traffic):
    def fail(requests):
        raise ValueError("as always")

    model = bind(fail)
    large = np.ones((1, 50_000), np.float32)
    for number in range(30):
        assert "as always" in failure_of(traffic, model, large if number % 2 else None)


def failing(requests):
    raise ValueError(f"no {requests[0]['x'].sum()}")


async def failing_async(requests):
    failing(requests)


def failing_stream(requests):
    yield failing(requests)


FAILING = [
    failing,
    failing_async,
    failing_stream,
    batch(lambda **inputs: failing([inputs])),
    Processes(lambda: failing, count=1),
]


@pytest.mark.parametrize("function", FAILING, ids=["plain", "coroutine", "generator", "batch", "processes"])
def test_a_failure_that_repeats_is_logged_once_and_counted(bind, triton, traffic, caplog, function):
    model = bind(function)
    with caplog.at_level(logging.WARNING, "pytriton"):
        for number in range(100):
            failure_of(traffic, model, np.full((1, 1), number, np.float32))
        triton.unbind(model)
    first, *others = [record.getMessage() for record in caplog.records if f"model {model}:" in record.getMessage()]
    assert "the inference call failed" in first
    told = [re.search(r"ValueError at .*:\d+, (\d+) more times? in the last", text) for text in others]
    assert sum(int(each[1]) for each in told) == 99
    assert others[-1].endswith("ValueError: no 99.0")
    assert caplog.text.count("Traceback") == 1


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "form",
    [
        lambda function: function,
        batch,
        lambda function: Processes(lambda: function, count=1),
    ],
    ids=["plain", "batch", "processes"],
)
def test_a_declared_output_that_is_missing_is_an_error(bind, traffic, form, strict):
    def plain(requests=None, x=None):
        return [{} for _ in requests] if requests is not None else {}

    assert "returned no output, but not 'y'" in failure_of(traffic, bind(form(plain), strict=strict))


def test_an_undeclared_output_in_place_of_a_declared_one_is_an_error_that_names_both(bind, traffic, caplog):
    model = bind(batch(lambda x: {"z": x}))
    with caplog.at_level(logging.WARNING, "pytriton"):
        assert "returned 'z', but not 'y'" in failure_of(traffic, model)
    assert f"model {model}: its callable returned 'z', which is not sent" in caplog.text


def test_an_undeclared_output_beside_the_declared_ones_is_warned_of_once(bind, traffic, caplog):
    model = bind(batch(lambda x: {"y": x, "z": x}))
    with caplog.at_level(logging.WARNING, "pytriton"):
        for _ in range(3):
            assert traffic.infer(model, filled(4)).keys() == {"y"}
    (record,) = [record for record in caplog.records if model in record.getMessage()]
    assert "returned 'z', which is not sent" in record.getMessage()
