"""Which proxy serves the models of the tests: ``PYTRITON_PROXY``, or what "auto" gives; and whether there is C++.

Likewise which edge does: ``PYTRITON_TRITON_CONFIG_HTTP_FRONTEND``, or the default.
"""

from __future__ import annotations

import pytest

from pytriton.config import TritonConfig
from pytriton.server.backends import LIBRARY, uses_native
from pytriton.server.edge import uses_edge

IS_NATIVE = uses_native("auto", ours=True)
HAS_EDGE = uses_edge(TritonConfig.from_env())
MALFORMED = 400 if HAS_EDGE else 500  # the status of a request over HTTP that is not what it should be

python_proxy_only = pytest.mark.skipif(IS_NATIVE, reason="about Triton's Python backend")
native_proxy_only = pytest.mark.skipif(not IS_NATIVE, reason="about the native proxy")
native_part_only = pytest.mark.skipif(not LIBRARY.is_file(), reason="nothing was compiled here")
