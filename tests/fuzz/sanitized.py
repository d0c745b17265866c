"""The package with its native libraries compiled with sanitizers, for a service whose other programs are as they are.

The server and the interpreters are not compiled with sanitizers, but the runtime of AddressSanitizer is preloaded into
them, so that it also has the memory that they allocate. ThreadSanitizer would take threads and locks of the server for
races, as it does not see them; it checks the libraries in the programs of ``tests/native``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["SANITIZERS", "environment", "make_package", "reports"]

ROOT = Path(__file__).parents[2]
SANITIZERS = {"address": "address,undefined"}  # by the name that the fuzzer is given
LIBRARIES = ("triton_pytriton", "pytriton_preload", "pytriton_http", "pytriton_requests")
REPORT = "report"
# Allocations in one library are freed in another whose C++ library is linked in. Freed memory is kept for a while, for
# what uses it afterwards; little of it, since the service's memory is limited.
OPTIONS = {
    "abort_on_error": 0,
    "alloc_dealloc_mismatch": 0,
    "detect_leaks": 0,
    "detect_odr_violation": 0,
    "quarantine_size_mb": 32,
    "verify_asan_link_order": 0,  # the server is preloaded with another library first, which needs the runtime
}


def make_package(sanitizer: str, folder: Path) -> None:
    """Make a folder with ``pytriton`` and ``tests``, to be the current one of what imports them.

    Raises:
        SystemExit: It cannot be compiled.
    """
    build, package = folder / "native", folder / "pytriton"
    flags = f"-O1 -g1 -fno-omit-frame-pointer -fsanitize={SANITIZERS[sanitizer]} -fno-sanitize-recover=undefined"
    options = [f"-DCMAKE_{language}_FLAGS={flags}" for language in ("C", "CXX")]
    configure = ["cmake", "-S", ROOT / "pytriton/native", "-B", build, "-DCMAKE_BUILD_TYPE=None", *options]
    for command in (configure, ["cmake", "--build", build, "--parallel", "2", "--target", *LIBRARIES]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(done.stdout)
    shutil.rmtree(package, ignore_errors=True)
    left_out = shutil.ignore_patterns("__pycache__", "vendor", "libpytriton_inprocess.so")
    shutil.copytree(ROOT / "pytriton", package, ignore=left_out, copy_function=os.link)
    for library in LIBRARIES:
        file = package / "native" / f"lib{library}.so"
        file.unlink(missing_ok=True)  # the package's own has other links
        shutil.copy(build / file.name, file)
    if not (folder / "tests").exists():
        (folder / "tests").symlink_to(ROOT / "tests")


def environment(reports_folder: Path) -> dict[str, str]:
    """What a program's environment needs so that it loads such libraries; reports are written to a folder."""
    runtimes = [_runtime(name) for name in ("libasan.so", "libubsan.so")]
    options = ":".join(f"{name}={value}" for name, value in {**OPTIONS, "log_path": reports_folder / REPORT}.items())
    return {"LD_PRELOAD": ":".join(runtimes), "ASAN_OPTIONS": options, "UBSAN_OPTIONS": f"print_stacktrace=1:{options}"}


def reports(folder: Path) -> list[Path]:
    """What sanitizers have written there."""
    return sorted(folder.glob(f"{REPORT}.*"))


def _runtime(name: str) -> str:
    found = subprocess.run(["c++", f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True, check=True).stdout
    if not Path(found.strip()).is_absolute():
        sys.exit(f"the compiler c++ has no {name}: it takes that of GCC, with its sanitizers")
    return str(Path(found.strip()).resolve())
