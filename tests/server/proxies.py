"""Which proxy serves the models of the tests: ``PYTRITON_PROXY``, or what "auto" gives; and whether there is C++."""

from __future__ import annotations

import pytest

from pytriton.server.backends import LIBRARY, uses_native

IS_NATIVE = uses_native("auto", ours=True)

python_proxy_only = pytest.mark.skipif(IS_NATIVE, reason="about Triton's Python backend")
native_proxy_only = pytest.mark.skipif(not IS_NATIVE, reason="about the native proxy")
native_part_only = pytest.mark.skipif(not LIBRARY.is_file(), reason="nothing was compiled here")
