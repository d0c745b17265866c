from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.decorators import ConstantPadder, TritonContext, batch, group_by_keys, group_by_values
from pytriton.exceptions import PyTritonRuntimeError, PyTritonValidationError
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.types import Request, RequestBatch

A, B = np.array([[1.0]]), np.array([[2.0]])


def recorder(returns):
    """A function that keeps its calls; ``returns`` makes the result from the arguments."""

    def function(*args, **kwargs):
        function.calls.append(args[0] if args else kwargs)
        return returns(*args, **kwargs)

    function.calls = []
    return function


def echo(requests):
    return [{"o": request["a"], "inputs": sorted(request)} for request in requests]


# group_by_keys


def test_group_by_keys_calls_once_per_set_of_inputs_and_keeps_the_order_of_requests():
    function = recorder(echo)
    requests = [{"a": A}, {"a": B, "b": B}, {"a": B}]
    results = group_by_keys(function)(requests)
    assert function.calls == [[requests[0], requests[2]], [requests[1]]]
    assert [result["inputs"] for result in results] == [["a"], ["a", "b"], ["a"]]
    assert [result["o"].item() for result in results] == [1, 2, 2]


def test_group_by_keys_ignores_the_order_of_inputs():
    function = recorder(echo)
    group_by_keys(function)([{"a": A, "b": B}, {"b": B, "a": A}])
    assert len(function.calls) == 1


def test_group_by_keys_calls_groups_in_sorted_order_of_their_names():
    function = recorder(echo)
    group_by_keys(function)([{"a": A, "c": A}, {"b": B, "a": A}, {"a": A}])
    assert [sorted(requests[0]) for requests in function.calls] == [["a"], ["a", "b"], ["a", "c"]]


def test_group_by_keys_passes_one_group_as_it_is():
    function = recorder(echo)
    requests = RequestBatch({"a": np.zeros((2, 1))}, [1, 1], [Request(), Request()])
    pristine = recorder(lambda requests: requests.columns())
    assert list(group_by_keys(pristine)(requests)) == ["a"]
    results = group_by_keys(function)(requests)
    assert function.calls[0] is requests
    assert len(results) == 2


def test_group_by_keys_groups_a_block_whose_requests_were_changed():
    requests = RequestBatch({"a": np.zeros((2, 1))}, [1, 1], [Request(), Request()])
    requests[0]["b"] = B
    assert [result["inputs"] for result in group_by_keys(echo)(requests)] == [["a", "b"], ["a"]]


def test_group_by_keys_passes_other_arguments_to_each_group():
    def function(requests, extra, *, scale):
        return [(extra, scale) for _ in requests]

    assert group_by_keys(function)([{"a": A}, {"b": B}], "x", scale=2) == [("x", 2)] * 2


@pytest.mark.parametrize(("returns", "got"), [(lambda requests: [], "list of 0"), (lambda requests: "no", "str")])
def test_group_by_keys_refuses_results_that_are_not_one_per_request(returns, got):
    with pytest.raises(PyTritonValidationError, match=f"got 1 requests and returned a {got}; return a list"):
        group_by_keys(returns)([{"a": A}, {"b": B}])


def test_group_by_keys_refuses_an_empty_list_and_keyword_arrays():
    with pytest.raises(PyTritonValidationError, match="empty list"):
        group_by_keys(echo)([])
    with pytest.raises(PyTritonRuntimeError, match="@group_by_keys needs the list of requests"):
        group_by_keys(echo)(a=A)


# group_by_values


def test_group_by_values_calls_once_per_value_and_keeps_the_order_of_rows():
    function = recorder(lambda x, p: {"o": x * p})
    x, p = np.arange(15).reshape(3, 5), np.array([[2], [1], [2]])
    result = group_by_values("p")(function)(x=x, p=p)
    assert [(call["x"].shape, call["p"].tolist()) for call in function.calls] == [((1, 5), [[1]]), ((2, 5), [[2], [2]])]
    assert result["o"].tolist() == (x * p).tolist()


def test_group_by_values_splits_two_equal_rows_from_one_other():
    function = recorder(lambda x, p: {"o": x})
    group_by_values("p")(function)(x=np.zeros((3, 5)), p=np.array([1, 1, 2]))
    assert [call["x"].shape[0] for call in function.calls] == [2, 1]


def test_group_by_values_does_not_copy_a_single_group():
    function = recorder(lambda x, p: {"o": x})
    x = np.zeros((3, 5))
    assert group_by_values("p")(function)(x=x, p=np.ones(3))["o"] is x
    assert function.calls[0]["x"] is x


def test_group_by_values_calls_groups_in_sorted_order_of_several_inputs():
    function = recorder(lambda p, q: {"o": q})
    p, q = np.array([[b"b"], [b"a"], [b"b"]], object), np.array([[1, 9], [7, 7], [1, 2]])
    result = group_by_values("p", "q")(function)(p=p, q=q)
    assert [(call["p"].item(), call["q"].tolist()) for call in function.calls] == [
        (b"a", [[7, 7]]),
        (b"b", [[1, 2]]),
        (b"b", [[1, 9]]),
    ]
    assert result["o"].tolist() == q.tolist()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"", b"u", b"v\0"])), max_size=12),
    st.sampled_from([("p",), ("q",), ("p", "q"), ("absent",)]),
)
def test_group_by_values_gives_what_one_call_gives_when_rows_are_independent(rows, keys):
    p = np.array([[p] for p, _ in rows], np.int32).reshape(-1, 1)
    q = np.array([[q] for _, q in rows] or np.empty((0, 1)), object)

    def function(p, q):
        return {"double": p * 2, "same": q}

    groups = recorder(function)
    grouped, plain = group_by_values(*keys)(groups)(p=p, q=q), function(p, q)
    assert {name: array.tolist() for name, array in grouped.items()} == {
        name: array.tolist() for name, array in plain.items()
    }
    for call in groups.calls:
        for key in set(keys) & set(call):
            assert len({tuple(row) for row in call[key].tolist()}) <= 1


@pytest.mark.parametrize("sequence", [list, tuple])
@pytest.mark.parametrize("values", [[1, 2, 1], [1, 1, 1]])
def test_group_by_values_accepts_a_list_or_tuple_of_arrays(bind, sequence, values):
    decorated = batch(group_by_values("p")(lambda p: sequence([p, p + 1])))
    bind(decorated, outputs={"o": ((), np.int64), "next": ((), np.int64)})
    [result] = decorated([{"p": np.array(values)}])
    assert result["o"].tolist() == values
    assert result["next"].tolist() == [value + 1 for value in values]


def test_group_by_values_joins_outputs_of_different_lengths_after_padding():
    def function(p):
        return {"o": np.tile(p, (1, int(p[0, 0])))}

    p = np.array([[3], [1], [3]])
    result = group_by_values("p", pad_fn=ConstantPadder(-1))(function)(p=p)
    assert result["o"].tolist() == [[3, 3, 3], [1, -1, -1], [3, 3, 3]]
    with pytest.raises(ValueError, match=r"output 'o'.*\(1, 1\), \(2, 3\).*pad_fn"):
        group_by_values("p")(function)(p=p)


@pytest.mark.parametrize(
    ("pad_fn", "message"),
    [
        (lambda results: results[:1], "pad_fn got 2 results and returned 1"),
        (lambda results: [{"o": result["o"][:0]} for result in results], "output 'o' has 0 rows, expected 1"),
    ],
)
def test_group_by_values_refuses_a_pad_fn_that_drops_results_or_rows(pad_fn, message):
    with pytest.raises(PyTritonValidationError, match=message):
        group_by_values("p", pad_fn=pad_fn)(lambda p: {"o": p})(p=np.array([1, 2]))


def test_group_by_values_refuses_wrong_rows_and_different_outputs_of_groups():
    with pytest.raises(ValueError, match="output 'o' has 2 rows, expected 3"):
        group_by_values("p")(lambda p: {"o": p[:2]})(p=np.array([1, 1, 1, 2]))
    with pytest.raises(PyTritonValidationError, match=r"different outputs: \['o1'\] and \['o2'\]"):
        group_by_values("p")(lambda p: {f"o{p[0]}": p})(p=np.array([1, 2]))


def test_group_by_values_outside_batch_is_misuse():
    decorated = group_by_values("p")(batch(lambda p: {"o": p}))
    with pytest.raises(PyTritonRuntimeError, match="@group_by_values got no keyword arrays; put it below @batch"):
        decorated([{"p": A}])


def test_group_by_values_without_keys_makes_one_group():
    calls = []
    grouped = group_by_values()(lambda p: {"o": calls.append(p) or p})
    assert grouped(p=np.array([2, 1, 2]))["o"].tolist() == [2, 1, 2]
    assert [p.tolist() for p in calls] == [[2, 1, 2]]


@pytest.mark.parametrize("returned", [lambda o: {"o": o}, lambda o: [o]], ids=["dict", "list"])
def test_one_row_of_a_group_counts_for_all_of_its_rows(returned):
    def total(p, x):
        return returned(x.sum(axis=0, keepdims=True))

    config = TritonModelConfig("m", outputs=[TensorSpec("o", (1,), np.int64)])
    total.__triton_context__ = TritonContext()
    total.__triton_context__.model_configs[total] = config
    inputs = {"p": np.array([1, 2, 1]), "x": np.array([[1], [2], [3]])}
    assert group_by_values("p")(total)(**inputs)["o"].tolist() == [[4], [2], [4]]
    assert group_by_values()(total)(**inputs)["o"].tolist() == [[6], [6], [6]]


def test_group_by_values_passes_keywords_that_are_no_arrays_to_each_group():
    function = recorder(lambda p, scale: {"o": p * scale})
    assert group_by_values("p")(function)(p=np.array([2, 1]), scale=3)["o"].tolist() == [6, 3]
    assert [call["scale"] for call in function.calls] == [3, 3]


# coroutines and generators


@pytest.mark.parametrize("decorate", [group_by_keys, lambda f: batch(group_by_values("p")(f))])
def test_groups_of_a_coroutine_function_are_awaited_one_after_the_other(decorate):
    log = []

    async def function(*args, **kwargs):
        log.append("in")
        await asyncio.sleep(0)
        log.append("out")
        return echo(*args) if args else {"o": kwargs["p"]}

    requests = [{"a": A}, {"a": B, "b": B}] if decorate is group_by_keys else [{"p": np.array([1, 2])}]
    asyncio.run(decorate(function)(requests))
    assert log == ["in", "out"] * 2


def values_of(generator):
    async def collected():
        return [value async for value in generator]

    return asyncio.run(collected()) if hasattr(generator, "__aiter__") else list(generator)


def generator_function(times):
    def function(p):
        for step in range(times(p)):
            yield {"o": p * 10**step}

    return function


def async_generator_function(times):
    async def function(p):
        for step in range(times(p)):
            yield {"o": p * 10**step}

    return function


@pytest.mark.parametrize("make", [generator_function, async_generator_function])
def test_each_yielded_value_has_the_rows_of_all_groups(make):
    values = values_of(group_by_values("p")(make(lambda p: 2))(p=np.array([2, 1])))
    assert [value["o"].tolist() for value in values] == [[2, 1], [20, 10]]


@pytest.mark.parametrize("make", [generator_function, async_generator_function])
def test_groups_that_yield_different_numbers_of_times_are_refused(make):
    generator = group_by_values("p")(make(lambda p: p[0]))(p=np.array([2, 1]))
    with pytest.raises(PyTritonRuntimeError, match="1 of 2 groups ended before the others"):
        values_of(generator)


@pytest.mark.parametrize("decorate", [batch, lambda f: batch(group_by_values("p")(f))])
def test_closing_the_result_closes_all_generators_behind_it(decorate):
    inner = []  # references keep the generators open, unless they are closed on purpose

    def function(p):
        inner.append(generator_function(lambda p: 2)(p))
        return inner[-1]

    generator = decorate(function)([{"p": np.array([2, 1])}])
    next(generator)
    generator.close()
    assert [one.gi_frame for one in inner] == [None] * len(inner)
    assert inner


def test_closing_the_result_closes_the_async_generators_of_all_groups():
    closed = []

    async def function(p):
        try:
            yield {"o": p}
            yield {"o": p}
        finally:
            closed.append(p[0])

    async def first_then_close():
        generator = batch(group_by_values("p")(function))([{"p": np.array([2, 1])}])
        await anext(generator)
        await generator.aclose()
        return sorted(closed)

    assert asyncio.run(first_then_close()) == [1, 2]
