"""The front door: an ASGI application with JSON routes for the models of a server.

Run it in a process of its own with ``Triton(rest=True)``, mount it in an application of yours, or call it without a
network, on a server in this process::

    app = create_app(triton)
"""

from pytriton.rest.app import create_app
from pytriton.rest.config import RestConfig

__all__ = ["RestConfig", "create_app"]
