"""Whether a server lives."""

from __future__ import annotations

from pytriton.compat.tensorrtserver.context import Context

__all__ = ["ServerHealthContext"]


class ServerHealthContext(Context):
    """Asks a server for its health; the arguments are those of :class:`Context`."""

    def is_live(self) -> bool:
        """Whether the server runs.

        Raises:
            InferenceServerException: It cannot be reached.
        """
        with self._request():
            return bool(self._call("is_server_live"))

    def is_ready(self) -> bool:
        """Whether all models of the server can serve.

        Raises:
            InferenceServerException: It cannot be reached.
        """
        with self._request():
            return bool(self._call("is_server_ready"))
