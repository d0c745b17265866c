"""``RemoteTriton``: binds Python callables as models of a Triton Inference Server that another process launched."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pytriton.base import TritonBase
from pytriton.client.exceptions import PyTritonClientConnectionError
from pytriton.cluster.options import ProxyListener
from pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from pytriton.exceptions import PyTritonModelControlError
from pytriton.introspection import override
from pytriton.logs import get_logger
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.rest.config import RestConfig, checked
from pytriton.server.access import Access
from pytriton.server.backends import NO_PYTHON_BACKEND
from pytriton.server.endpoints import ServerEndpoints
from pytriton.server.model_server import CALL_TIMEOUT_S, MESSAGE_END, OWNER, ModelServer, WaitDrained
from pytriton.server.repository import CONFIG_FILE, ENDPOINT_FILE, PROXY_PACKAGE
from pytriton.utils.workspace import Workspace

if TYPE_CHECKING:
    from pytriton.cluster.relay import ProxyRelay

__all__ = ["RemoteServer", "RemoteTriton"]

LOGGER = get_logger("pytriton.triton")

SETTLE_TIMEOUT_S = 10.0
ACCESS_POLL_S = 1.0
LIVE_TIMEOUT_S = 5.0
COMES_BACK_S = 5.0  # until a program that watches its server has launched it again
RESTRICTED = "restricted"
ADVICE = {
    RESTRICTED: "give RemoteTriton the server's access_token",
    "explicit model load / unload is not allowed": "start that server with --model-control-mode=explicit",
    NO_PYTHON_BACKEND: "RemoteTriton needs Triton's Python backend, which this server has not. If it belongs to a "
    "Triton object, start that with an interpreter whose shared library is installed and that the server has a stub "
    "for (pytriton env tells); or bind the model in that process",
}


class RemoteServer(ModelServer):
    """A server that does not see the model repository, because another process launched it: loads send the files.

    Args:
        relay: Listens for proxies on another machine; None if they share the workspace.
    """

    is_shared = True

    def __init__(self, access: Access, store: Path, relay: ProxyRelay | None = None) -> None:
        super().__init__(access)
        self._store = store
        self._relay = relay
        self.id = uuid4().hex

    @override
    def is_alive(self) -> bool:
        return self.is_ready()

    def is_live(self) -> bool:
        """Whether the server answers within some seconds."""
        try:
            return bool(self._call("is_server_live", LIVE_TIMEOUT_S))
        except PyTritonModelControlError:
            return False

    def check_ready(self, timeout_s: float, keep_waiting: Callable[[], bool] = lambda: True) -> None:
        """Wait until the server is live, whether or not its other models are ready.

        Raises:
            PyTritonClientTimeoutError: The server was not live in time; also a TimeoutError.
            PyTritonModelControlError: The server wants another access token.
        """
        deadline = time.monotonic() + timeout_s
        while (answer := self.wait_ready(min(ACCESS_POLL_S, timeout_s), keep_waiting, live=True)) is not None:
            self._check_token()
            if time.monotonic() >= deadline or not keep_waiting():
                raise self._not_ready(timeout_s, answer)
        self._check_token()

    def _check_token(self) -> None:
        try:
            self.version_states()
        except PyTritonModelControlError as error:
            if ADVICE[RESTRICTED] in str(error):
                raise

    def load(self, name: str) -> None:
        """Load a model, with its configuration and files, in place of one of that name."""
        with suppress(PyTritonModelControlError):  # loading it shows the problem
            if self.is_model_ready(name) and not self.is_own(name):
                LOGGER.warning(
                    "model %s: the server at %s serves a model of this name already; it is replaced", name, self.url
                )
        folder = self._store / name
        config_file = folder / CONFIG_FILE
        config = ModelConfigGenerator(ModelConfigParser.from_file(config_path=config_file)).get_config()
        config.setdefault("parameters", {})[OWNER] = {"string_value": self.id}
        files = {
            f"file:{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path != config_file
        }
        if self._relay is not None:
            files |= _remote_files(files, self._relay)
        arguments: dict[str, Any] = {"model_name": name, "config": json.dumps(config), "files": files}
        try:
            self._call("load_model", **arguments)
        except PyTritonModelControlError as error:
            if not isinstance(error.__cause__, PyTritonClientConnectionError) or not self._comes_back():
                raise
            LOGGER.warning("model %s: the server at %s ended while it loaded it; loading it again", name, self.url)
            self._call("load_model", **arguments)

    def _comes_back(self) -> bool:
        """Whether a server whose connection was lost is there again within some seconds."""
        return self.wait_ready(COMES_BACK_S, lambda: True, live=True) is None

    def unload(self, name: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """As :meth:`ModelServer.unload`, unless the model of this name is not the one that this object loaded."""
        if self.is_own(name):
            super().unload(name, timeout_s)

    @override
    def end(self, models: Sequence[str], wait_drained: WaitDrained, deadline: float) -> None:
        try:
            for name in models:
                self.unload(name)
        except PyTritonModelControlError as error:
            LOGGER.warning("models cannot be unloaded from the server at %s: %s", self.url, error)
            return
        if not wait_drained(deadline, lambda: True):
            LOGGER.warning("requests in flight were ended after %.0f s", self.exit_timeout_s)
        if models:  # else a model that it has refused would be all that keeps it from being ready
            self.wait_ready(SETTLE_TIMEOUT_S, lambda: True)

    def kill(self) -> None:
        """Leave the server, which goes on; its proxies of our models cannot reach them any more."""
        if self._relay is not None:
            self._relay.close()

    def _explain(self, message: str) -> str:
        for text, advice in ADVICE.items():
            if text in message:
                return f"{message.rstrip(MESSAGE_END)}; {advice} (the server at {self.url})"
        return message


def _remote_files(files: dict[str, bytes], relay: ProxyRelay) -> dict[str, bytes]:
    """The files that proxies of a model need on another machine, or need in another form."""
    from pytriton.cluster import relay as module

    found = {}
    for path, content in files.items():
        version, _, name = path.rpartition("/")
        if name == ENDPOINT_FILE:
            endpoint = json.loads(content)
            del endpoint["folder"]
            found[path] = json.dumps({**endpoint, "remote": relay.description}).encode()
            for file in module.PROXY_FILES:
                source = Path(module.__file__).with_name(file)
                found[f"{version}/{PROXY_PACKAGE}/{source.parent.name}/{file}"] = source.read_bytes()
    return found


class RemoteTriton(TritonBase):
    """Serves bound callables with a server that another process, a container or another machine runs.

    The models are loaded through the server's repository API, for which it must allow explicit model control
    (``--model-control-mode=explicit``; servers of :class:`Triton` do). A model that the server loses, because it
    restarts or another client unloads it, is loaded again; one that another process replaces is not. The models go with
    :meth:`unbind`, :meth:`stop`, on leaving the context and at the interpreter's exit.

    Args:
        url: As :meth:`pytriton.client.utils.TritonUrl.from_url` reads it.
        workspace: Folder for the sockets over which the server's proxies reach this process. It must not exist, and
            must be below a folder that both see under the same path. It is removed at the end.
        access_token: Of the server, if its model-repository endpoint is restricted. None takes that in the environment
            variable ``PYTRITON_ACCESS_TOKEN``, if there is one.
        init_timeout_s: How long to wait for the server to be ready.
        rest: As for :class:`Triton`; the app serves all models of the server.
        memory_budget: As for :class:`Triton`.
        listen: Address at which this process listens for the server's proxies, which then need not run on this machine:
            ``tcp://10.0.0.1:5600``. Tensors travel there over ZeroMQ, and the two share no folder. Needs pyzmq here and
            in the Python of the server's machine. Without keys, only ``ipc://`` or a loopback address.
        address: At which the server's machine reaches this process, if not at ``listen``.
        key: File with this side's secret key (``pytriton keys``).
        proxy_keys: Folder with the public keys of the proxies that may connect.
        proxy_key: File with the proxies' secret key, on the server's machine.
        heartbeat_s: A proxy or this process is lost if it is silent for three times as long.

    Attributes:
        triton_context: What the bound callables share.

    Raises:
        PyTritonClientInvalidUrlError: The URL cannot be understood.
        FileExistsError: ``workspace`` exists.
        PyTritonValidationError: Other machines may connect without keys, or ``address`` is needed.
        PyTritonBadParameterError: Another of the arguments for ``listen`` has a wrong value.
        ImportError: ``listen`` needs pyzmq.
    """

    def __init__(
        self,
        url: str,
        workspace: Workspace | str | Path | None = None,
        access_token: str | None = None,
        *,
        init_timeout_s: float = DEFAULT_TRITON_STARTUP_TIMEOUT_S,
        rest: RestConfig | bool | None = False,
        memory_budget: int | None = None,
        listen: str | None = None,
        address: str | None = None,
        key: str | Path | None = None,
        proxy_keys: str | Path | None = None,
        proxy_key: str | Path | None = None,
        heartbeat_s: float = 2.0,
    ) -> None:
        listener = None
        if listen is not None:
            listener = ProxyListener(
                listen,
                address=address,
                key=key,
                proxy_keys=proxy_keys,
                proxy_key=proxy_key,
                heartbeat_s=heartbeat_s,
            )
        access = Access.to_other(url, access_token)
        super().__init__(workspace, rest=checked(rest), memory_budget=memory_budget)
        self._listener = listener
        self._relay: ProxyRelay | None = None
        self._access = access
        self._init_timeout_s = init_timeout_s

    def is_alive(self) -> bool:
        """Whether there is a server, which is asked if nothing was bound yet, and every bound model can be served."""
        if self._server is None and not self._lifecycle.stopping and not [*self._models]:
            return self._new_server().is_live()
        return super().is_alive()

    def is_connected(self) -> bool:
        """Whether the server has every bound model now, connected to this process."""
        return super().is_connected() and not any(map(self._models.is_lost, self._models))

    def endpoints(self) -> ServerEndpoints:
        """The endpoint of the server that this object was given."""
        return ServerEndpoints.of_access(self._access)

    def _start_server(self) -> ModelServer:
        self._relay = self._new_relay()
        server = self._new_server(self._relay)
        try:
            server.check_ready(self._init_timeout_s, self._lifecycle.is_wanted)
        except BaseException:
            server.kill()
            raise
        LOGGER.info("connected to the Triton Inference Server at %s", server.url)
        return server

    def _new_relay(self) -> ProxyRelay | None:
        if self._listener is None:
            return None
        from pytriton.cluster.relay import ProxyRelay

        return ProxyRelay(self._listener, self._models.sockets)

    def _new_server(self, relay: ProxyRelay | None = None) -> RemoteServer:
        return RemoteServer(self._access, self._workspace.model_store_path, relay)
