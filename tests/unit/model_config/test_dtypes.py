import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.inprocess.capi import DataType
from pytriton.model_config import dtypes
from pytriton.python_proxy import abi
from pytriton.wire.tensors import BYTES, DTYPES, SCALAR_TYPES

NATIVE_TABLE = Path(dtypes.__file__).parents[1] / "native" / "frames" / "tensors.cpp"

NUMERIC = [
    (np.bool_, "BOOL", "TYPE_BOOL"),
    (np.uint8, "UINT8", "TYPE_UINT8"),
    (np.uint16, "UINT16", "TYPE_UINT16"),
    (np.uint32, "UINT32", "TYPE_UINT32"),
    (np.uint64, "UINT64", "TYPE_UINT64"),
    (np.int8, "INT8", "TYPE_INT8"),
    (np.int16, "INT16", "TYPE_INT16"),
    (np.int32, "INT32", "TYPE_INT32"),
    (np.int64, "INT64", "TYPE_INT64"),
    (np.float16, "FP16", "TYPE_FP16"),
    (np.float32, "FP32", "TYPE_FP32"),
    (np.float64, "FP64", "TYPE_FP64"),
]
TABLE = [*NUMERIC, (np.bytes_, "BYTES", "TYPE_STRING")]


def test_the_native_proxy_has_the_same_names_sizes_and_codes():
    sizes = {name: np.dtype(scalar).itemsize for name, scalar in SCALAR_TYPES.items()}  # 0 for BYTES
    rows = re.findall(r'\{"(\w*)", (\d+)\}', NATIVE_TABLE.read_text())
    expected = [("", 0), *((dtypes.config_name(SCALAR_TYPES[name]), size) for name, size in sizes.items())]
    assert [(name, int(size)) for name, size in rows] == expected


def test_codes_are_those_of_the_servers_api():
    assert [*SCALAR_TYPES] == [member.name for member in DataType][1:14]
    assert {code: SCALAR_TYPES[DataType(code).name] for code in DTYPES} == {c: d.type for c, d in DTYPES.items()}
    assert BYTES == DataType.BYTES


def test_the_adapter_of_the_python_backend_knows_the_numeric_types():
    assert [*DTYPES.values()] == abi.DTYPES  # it is used without the package, and so has a list of its own


@pytest.mark.parametrize(("scalar", "triton", "config"), TABLE)
def test_each_type_has_both_names_and_comes_back_from_them(scalar, triton, config):
    assert (dtypes.triton_name(scalar), dtypes.config_name(scalar)) == (triton, config)
    assert dtypes.from_triton_name(triton) is scalar
    assert dtypes.from_config_name(config) is scalar


@pytest.mark.parametrize(("scalar", "triton", "config"), NUMERIC)
def test_a_numeric_type_may_be_given_as_type_dtype_or_string_of_any_byte_order(scalar, triton, config):
    dtype = np.dtype(scalar)
    for given_as in (scalar, dtype, dtype.name, dtype.str, dtype.newbyteorder()):
        assert dtypes.scalar_type(given_as) is scalar


@pytest.mark.parametrize(("builtin", "scalar"), [(bool, np.bool_), (float, np.float64), (bytes, np.bytes_)])
def test_builtin_types_are_taken_as_numpy_takes_them(builtin, scalar):
    assert dtypes.scalar_type(builtin) is scalar


@pytest.mark.parametrize("alias", [np.longlong, np.ulonglong, np.intc, np.uintc, np.intp])
def test_c_integer_types_become_the_sized_type_of_the_same_layout(alias):
    assert dtypes.scalar_type(alias).__name__ == np.dtype(alias).name


@pytest.mark.parametrize("given_as", [object, np.object_, np.dtype(object), "object", "O"])
def test_objects_stay_objects_and_travel_as_bytes(given_as):
    assert dtypes.scalar_type(given_as) is np.object_
    assert dtypes.config_name(given_as) == "TYPE_STRING"


@pytest.mark.parametrize("given_as", [bytes, np.bytes_, np.dtype("S7"), "bytes", "S"])
def test_bytes_of_any_length_travel_as_bytes(given_as):
    assert dtypes.scalar_type(given_as) is np.bytes_
    assert dtypes.triton_name(given_as) == "BYTES"


UNSUPPORTED = [
    str,
    np.str_,
    "U",
    "str",
    complex,
    np.complex64,
    "complex128",
    np.datetime64,
    "M8[s]",
    np.timedelta64,
    np.void,
    np.dtype([("a", np.int32)]),
    np.dtype((np.float32, (2,))),
    "i4,f4",
    np.longdouble,
    np.floating,
    np.generic,
    list,
    None,
    3,
    np.zeros(2),
    "TYPE_FP32",
    "bfloat16",
    "",
    "(",
]


@pytest.mark.parametrize("given_as", UNSUPPORTED, ids=repr)
def test_other_types_are_refused_with_the_list_of_those_allowed(given_as):
    allowed = "bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, float32, float64, bytes, object"
    for function in (dtypes.scalar_type, dtypes.triton_name, dtypes.config_name):
        with pytest.raises(PyTritonBadParameterError, match=allowed):
            function(given_as)


@given(st.text(alphabet="bBhHiIlLqQefdgSO?0123456789<>=|,()[]: x", max_size=6))
def test_a_string_is_either_a_known_type_or_a_bad_parameter(text):
    try:
        scalar = dtypes.scalar_type(text)
    except PyTritonBadParameterError:
        return
    assert scalar in {np.object_, *(row[0] for row in TABLE)}


@pytest.mark.parametrize("name", ["FP128", "fp32", "TYPE_BF16", "TYPE_INVALID", ""])
def test_unknown_names_are_value_errors_that_list_the_known_ones(name):
    with pytest.raises(ValueError, match=re.escape(f"{name!r} is not a supported data type; supported are BOOL")):
        dtypes.from_triton_name(name)
    with pytest.raises(ValueError, match=r"supported are TYPE_BOOL.*TYPE_STRING"):
        dtypes.from_config_name(name)
