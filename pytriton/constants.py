"""Names and defaults shared by the serving side and the clients."""

import os
from pathlib import Path

DEFAULT_HTTP_PORT = 8000
DEFAULT_GRPC_PORT = 8001
DEFAULT_METRICS_PORT = 8002
TRITON_LOCAL_IP = "127.0.0.1"
TRITON_CONTEXT_FIELD_NAME = "triton_context"
TRITON_CONTEXT_ATTRIBUTE = "__triton_context__"  # where programs put a context for functions that are not bound
DEFAULT_TRITON_STARTUP_TIMEOUT_S = 120
GRPC_PREFIX = "triton-grpc-protocol-"  # of the metadata that carry a header which restricted APIs need

# Names that programs for nvidia-pytriton import from pytriton.triton; the sizes have no effect.
CREATE_TRITON_CLIENT_TIMEOUT_S = 10
MODEL_URL = "/v2/models/{model_name}"
MODEL_READY_URL = f"{MODEL_URL}/ready"
MODEL_CONFIG_URL = f"{MODEL_URL}/config"
MODEL_INFER_URL = f"{MODEL_URL}/infer"
WAIT_FORM_MODEL_TIMEOUT_S = 60.0
INITIAL_BACKEND_SHM_SIZE = 4 << 20
GROWTH_BACKEND_SHM_SIZE = 1 << 20

# Upper bounds of the buckets of durations, for the histograms of metrics, and finer ones for quantiles, which are wrong
# by a bucket, a quarter, at most. The edge gets them in its options.
HISTOGRAM_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
    *(2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
LATENCY_BOUNDS_S = tuple(0.0001 * 1.25**index for index in range(60))


def _home() -> Path:
    chosen = os.environ.get("PYTRITON_HOME")
    if chosen:
        return Path(os.path.expandvars(chosen)).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "pytriton"


PYTRITON_HOME = _home()
"""Parent of temporary workspaces: ``$PYTRITON_HOME``, else ``$XDG_CACHE_HOME/pytriton``, else ``~/.cache/pytriton``."""
ERROR_CODE_PARAMETER = "pytriton_error_code"
"""A request with this parameter gets messages of errors that begin with their code.

Streams carry nothing else, and HTTP has one status for several codes.
"""

CALLERS_PARAMETER = "pytriton_callers"
"""The parameter of a request that a callable makes: a secret, how many models wait for it, and their names.

Such requests come through the same doors as those of clients, which may send anything, also as a header that becomes a
parameter. So no door looks at it: where a callable makes another request, only what begins with the secret counts.
Programs that may load models have it (:func:`pytriton.composition.connector.secret_of`); no callable gets to see it.
"""
