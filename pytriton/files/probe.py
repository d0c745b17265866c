"""Files that end the process which reads them: another process reads them first.

XGBoost, LightGBM, CatBoost and llama.cpp are not made for files that somebody has changed: a wrong byte may be an
address for them. The other process answers one row. It loads the library alone, through its C API, and takes about
0.05 s; those of CatBoost and llama.cpp import their packages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = ["check_survives", "check_trees", "damaged"]

TIMEOUT_S = 60
C_API = """
import ctypes, json, sys
library = ctypes.CDLL(json.loads(sys.argv[1]))
path, handle, count = sys.argv[2].encode(), ctypes.c_void_p(), ctypes.c_int()
def call(name, *arguments):
    if getattr(library, name)(*arguments):
        sys.exit(1)
"""
PROGRAMS = {
    "libxgboost.so": C_API
    + """
data, size = open(path, "rb").read(), ctypes.c_uint64()
rows, found = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_float)()
call("XGBoosterCreate", None, ctypes.c_uint64(0), ctypes.byref(handle))
call("XGBoosterLoadModelFromBuffer", handle, data, ctypes.c_uint64(len(data)))
call("XGBoosterGetNumFeature", handle, ctypes.byref(size))
row = (ctypes.c_float * min(size.value, 2**24))()
call("XGDMatrixCreateFromMat", row, ctypes.c_uint64(1), size, ctypes.c_float(float("nan")), ctypes.byref(rows))
call("XGBoosterPredict", handle, rows, 0, 0, 0, ctypes.byref(size), ctypes.byref(found))
""",
    "lib_lightgbm.so": C_API
    + """
size, rows = ctypes.c_int64(), ctypes.c_int()
call("LGBM_BoosterCreateFromModelfile", path, ctypes.byref(rows), ctypes.byref(handle))
call("LGBM_BoosterGetNumFeature", handle, ctypes.byref(count))
call("LGBM_BoosterCalcNumPredict", handle, 1, 0, 0, -1, ctypes.byref(size))
row, found = (ctypes.c_double * min(count.value, 2**24))(), (ctypes.c_double * min(size.value, 2**24))()
call("LGBM_BoosterPredictForMat", handle, row, 1, 1, count, 1, 0, 0, -1, b"num_threads=1", ctypes.byref(size), found)
""",
    "libllama.so": """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import llama_cpp
llama_cpp.Llama(sys.argv[2], n_ctx=8, verbose=False).eval([0])
""",
    "_catboost.so": """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import catboost
model = catboost.CatBoost().load_model(sys.argv[2])
texts = {*model.get_cat_feature_indices(), *model.get_text_feature_indices()}
model.predict([["0" if number in texts else 0.0 for number in range(len(model.feature_names_))]], thread_count=1)
""",
}


def check_survives(path: Path, library: str) -> None:
    """Read a file in another process, and answer one row with it.

    Args:
        library: Name of the library's file, which this process has loaded; a key of ``PROGRAMS``.

    Raises:
        PyTritonValidationError: That process has died, or has not ended in time.
    """
    program = PROGRAMS[library]
    where = _loaded(library) if program.startswith(C_API) else sys.path
    command = [sys.executable, "-I", "-S", "-c", program, json.dumps(where), str(path)]
    try:
        status = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S).returncode
    except subprocess.TimeoutExpired as error:
        raise PyTritonValidationError(
            f"{path} was not read by {library} within {TIMEOUT_S} s: it is damaged, or this machine is too busy; try "
            "again"
        ) from error
    if status < 0:
        raise PyTritonValidationError(
            f"{path} is damaged: a process that reads it dies in {library}; save the model again"
        )


def check_trees(path: Path) -> None:
    """Check that all of a file of LightGBM is there: reading one that is cut off may end the process (4.7).

    Raises:
        PyTritonValidationError: Trees or parameters are missing, or have another size than the file says.
    """
    data = path.read_bytes()
    sizes = re.search(rb"^tree_sizes=([\d ]*)$", data, re.MULTILINE)
    starts = [each.start() for each in re.finditer(rb"^Tree=\d+$", data, re.MULTILINE)]
    end = data.find(b"\nend of trees\n")
    expected = [int(each) for each in sizes[1].split()] if sizes else []
    found = [after - before for before, after in zip(starts, [*starts[1:], end + 1], strict=True)] if starts else []
    if end < 0 or found != expected or b"\nend of parameters\n" not in data[end:]:
        raise PyTritonValidationError(
            f"{path} is a damaged LightGBM file: trees or parameters are missing; save the model again"
        )


def damaged(path: Path, title: str, error: BaseException) -> PyTritonValidationError:
    """The error of a file that a library cannot read, in one line."""
    lines = [re.sub(r"^\[[\d:]+\] ", "", line.strip()) for line in str(error).splitlines() if line.strip()]
    return PyTritonValidationError(
        f"{path} cannot be read as {title} ({(lines or [type(error).__name__])[0]:.200}); it is damaged, or of another "
        "version of the library: save the model again"
    )


def _loaded(library: str) -> str:
    """The path of a library of this process."""
    paths = (line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    return next(path for path in paths if Path(path).name == library)
