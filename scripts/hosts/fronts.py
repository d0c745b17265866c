"""A hosting process of the section ``rest``: models that answer JSON at ``POST /predict/<model>``.

Usage: ``python fronts.py (own | native | mounted) <HTTP port> <two other ports> <model>...``;
SIGTERM ends it. ``own`` is the front in a process of its own, ``native`` the server's native HTTP front end with the
front behind it, ``mounted`` the same application on a server in this process.
"""

import signal
import sys

from served import HOST, bind, config_of, make


def own(port, others, models, is_native=False):
    """Serve the front in a process of its own; the server listens on the other ports, or natively on the same one."""
    from pytriton.rest import RestConfig
    from pytriton.triton import Triton

    config = config_of(port if is_native else others[0], others[1], None)
    config.allow_metrics = False
    rest = RestConfig() if is_native else RestConfig(address=HOST, port=port)
    if is_native:
        config.http_frontend = "native"
    with Triton(config=config, rest=rest) as triton:
        for name in models:
            bind(triton, name, make(name))
        triton.serve()


def mounted(port, models):
    """Serve the front, the server and the models in one process."""
    import uvicorn

    from pytriton.inprocess import Triton
    from pytriton.rest import create_app

    with Triton() as triton:
        for name in models:
            bind(triton, name, make(name))
        uvicorn.run(create_app(triton), host=HOST, port=port, log_level="warning", access_log=False)


def main():
    """Serve until a signal."""
    kind, port, *others = sys.argv[1], *map(int, sys.argv[2:5])
    models = sys.argv[5:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn sends itself the signal again at its end
    if kind in ("own", "native"):
        own(port, others, models, kind == "native")
    else:
        mounted(port, models)


if __name__ == "__main__":
    sys.exit(main())
