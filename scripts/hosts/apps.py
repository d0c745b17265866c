"""A hosting process of the section ``rest``: models that answer JSON at ``POST /predict/<model>``.

Usage: ``python apps.py (own | mounted) <HTTP port> <two other ports> <model>...``; SIGTERM ends it. ``own`` is the
app in a process of its own, behind the edge if that serves; ``mounted`` the same application on a
server in this process.
"""

import signal
import sys

from served import HOST, bind, config_of, make
from typed import TYPED


def bind_all(triton, models):
    """Bind the models of these names."""
    for name in models:
        if name in TYPED:
            triton.bind(TYPED[name])
        else:
            bind(triton, name, make(name))


def own(port, others, models):
    """Serve the app in a process of its own; the server listens on the other ports."""
    from pytriton.rest import RestConfig
    from pytriton.triton import Triton, TritonSecurityConfig

    config = config_of(*others, None)
    config.allow_metrics = False
    # The section "pages" opens them without a token.
    security = TritonSecurityConfig(restricted_endpoints=["model-repository"])
    with Triton(config=config, security_config=security, rest=RestConfig(address=HOST, port=port)) as triton:
        bind_all(triton, models)
        triton.serve()


def mounted(port, models):
    """Serve the app, the server and the models in one process."""
    import uvicorn

    from pytriton.inprocess import Triton
    from pytriton.rest import create_app

    with Triton() as triton:
        bind_all(triton, models)
        uvicorn.run(create_app(triton), host=HOST, port=port, log_level="warning", access_log=False)


def main():
    """Serve until a signal."""
    kind, port, *others = sys.argv[1], *map(int, sys.argv[2:5])
    models = sys.argv[5:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn sends itself the signal again at its end
    if kind == "own":
        own(port, others, models)
    else:
        mounted(port, models)


if __name__ == "__main__":
    sys.exit(main())
