"""The models bound to one server: what is bound, what the server has loaded, and what it has to load or to unload."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonModelControlError
from pytriton.logs import get_logger
from pytriton.model import Model
from pytriton.model_config.model_config import SpecificVersions, VersionPolicy
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.restarts import Backoff
from pytriton.server.model_server import ModelServer
from pytriton.threads import keep_running
from pytriton.utils.workspace import Workspace

__all__ = ["ModelRegistry"]

LOGGER = get_logger("pytriton.triton")

PARALLEL_LOADS = 8
QUIET_S = 1.0
POLL_S = 0.02
STATE_POLL_S = 0.1
DEATH_GRACE_S, DISMISSAL_GRACE_S = 0.05, 0.5
KEPT = "sockets/*", "http/rest.sock", "http/counters"  # what this process has in the workspace beside models' files
REVIVAL_PAUSE_S, LONGEST_REVIVAL_PAUSE_S, LONGEST_REFUSED_PAUSE_S = 0.1, 5.0, 30.0
NOT_AGAIN = "model %s cannot be loaded again: %s"


class ModelRegistry:
    """Models, in the order in which they were bound.

    Args:
        workspace: For the models' files and sockets.
        lock: Held by callers of the methods that change something, and by the threads of this object.
        running_server: The server, while it can be expected to answer.
        on_unrecoverable: Called when a callable asks to stop the server.

    Attributes:
        sockets: Folder of the sockets of model instances.
    """

    def __init__(
        self,
        workspace: Workspace,
        lock: threading.RLock,
        running_server: Callable[[], ModelServer | None],
        on_unrecoverable: Callable[[], None],
    ) -> None:
        self._workspace = workspace
        self._store = workspace.model_store_path
        self.sockets = workspace.path / "sockets"
        self.sockets.mkdir(mode=0o700)
        self._lock = lock
        self._running_server = running_server
        self._on_unrecoverable = on_unrecoverable
        self._cleared = threading.Event()
        self._numbers = count()
        self._models: list[Model] = []
        self._by_name: dict[str, list[Model]] = defaultdict(list)  # the same, by lower-case name

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._models))

    def check_new(self, config: TritonModelConfig, replace: bool) -> bool:
        """Check that another model can be bound beside these, or in place of the one of its name and version.

        Returns:
            Whether it takes the place of one.

        Raises:
            PyTritonInvalidOperationError: There is one that it may not replace; letter case does not count.
            PyTritonBadParameterError: It is another version of a model with another configuration.
        """
        beside = self._by_name[config.model_name.lower()]
        replaced = {model for model in beside if replace and model.is_same_version(config)}
        for model in beside:
            if model not in replaced:
                model.check_beside(config)
        return bool(replaced)

    def add(self, model: Model) -> None:
        """Take a model in; the configuration says again which of its versions are served."""
        self._set_policy(self._by_name[model.name.lower()])
        self._models.append(model)
        self._by_name[model.name.lower()].append(model)

    def versions(self, name: str, version: int | None = None) -> list[Model]:
        """The versions of a model, or the one that is asked for.

        Raises:
            PyTritonInvalidOperationError: There is none.
        """
        found = [model for model in self._models if model.name == name and version in (None, model.version)]
        if not found:
            what = f"model {name!r}" if version is None else f"version {version} of model {name!r}"
            names = ", ".join(sorted({repr(model.name) for model in self._models})) or "none"
            raise PyTritonInvalidOperationError(f"{what} is not bound; bound models are: {names}")
        return found

    def only_version(self, name: str, version: int | None, otherwise: str) -> Model:
        """The version of a model that is asked for; None asks for the only one.

        Raises:
            PyTritonInvalidOperationError: There is none, or there are several; ``otherwise`` is the message's end.
        """
        model, *others = self.versions(name, version)
        if others:
            raise PyTritonInvalidOperationError(f"model {name!r} has {1 + len(others)} versions{otherwise}")
        return model

    def names(self, *, loaded: bool = False) -> list[str]:
        """Of all models, or of those that the server was asked to serve."""
        return sorted({model.name for model in self._models if model.loaded or not loaded})

    def are_connected(self) -> bool:
        """Whether each model that the server is to serve has its proxies."""
        return all(model.is_connected() for model in self if self._is_served(model))

    def is_lost(self, model: Model) -> bool:
        """Whether the server was asked to serve a model, should have it, and has no proxy of it."""
        return model.loaded and model in self._models and not model.is_connected() and self._is_served(model)

    def _is_served(self, model: Model) -> bool:
        """Whether the version policy has the server serve a model."""
        return model.is_served_beside(self._by_name[model.name.lower()])

    def start(self, models: Iterable[Model] | None = None) -> None:
        """Write the files of models, by default of all, and start their workers, so that a server can load them."""
        for model in self._models if models is None else models:
            if not model.started:
                sockets = self.sockets / str(next(self._numbers))
                model.start(self._store, sockets, self._on_disconnect, self._on_unrecoverable)

    def load(self, server: ModelServer) -> None:
        """Load the models that are not loaded yet, in parallel; forget those that the server refuses.

        Raises:
            PyTritonModelControlError: The server refused one.
        """
        by_name: dict[str, list[Model]] = defaultdict(list)
        for model in self._models:
            if not model.loaded:
                by_name[model.name].append(model)
        _call_in_parallel([partial(self._load_versions, server, versions) for versions in by_name.values()])
        self._workspace.keep(*KEPT)

    def repair(self) -> None:
        """Make files again that a cleaner has removed from the workspace."""
        missing = self._workspace.repair()
        for model in self._models:
            if missing or not (self._store / model.name).exists():
                model.write_files()

    def _load_versions(self, server: ModelServer, models: Sequence[Model]) -> None:
        try:
            self.start(models)
            server.load(models[0].name)
            for model in models:
                if not self._is_served(model):
                    LOGGER.warning("model %s: its version policy leaves version %d out", model.name, model.version)
                elif not server.is_model_ready(model.name, model.version):
                    raise PyTritonModelControlError(
                        f"model {model.name!r}, version {model.version}, did not get ready; the server's log has more"
                    )
        except BaseException:
            for model in models:
                self.remove(model)
            raise
        for model in models:
            model.loaded = True
            LOGGER.info(server.announcement(model.config))

    def reload(self, server: ModelServer) -> None:
        """Load all models into a server that has lost them; those that it refuses are tried on in the background.

        Raises:
            PyTritonModelControlError: It has refused all of them, or has ended.
        """
        names, refused = self.names(loaded=True), dict[str, PyTritonModelControlError]()

        def load(name: str) -> None:
            try:
                server.load(name)
            except PyTritonModelControlError as error:
                refused[name] = error
            for model in self._by_name[name.lower()]:
                model.refused = name in refused

        _call_in_parallel([partial(load, name) for name in names])
        if refused and (len(refused) == len(names) or not server.is_alive()):
            raise next(iter(refused.values()))
        for name, error in refused.items():
            keep_running(partial(self._load_refused, server, name, str(error)), f"pytriton-load-{name}")

    def _load_refused(self, server: ModelServer, name: str, problem: str) -> None:
        """Try to load a model that the server has refused, until it is loaded, or no longer bound."""
        LOGGER.warning(NOT_AGAIN, name, problem)
        backoff = Backoff(REVIVAL_PAUSE_S, LONGEST_REFUSED_PAUSE_S)
        while not self._cleared.wait(backoff.next_s()):
            with self._lock:
                if self._running_server() is not server or not server.is_alive() or name not in self.names(loaded=True):
                    return
                before = problem
                try:
                    self.repair()
                    server.load(name)
                    for model in self.versions(name):
                        model.refused = False
                    LOGGER.warning("model %s was loaded again", name)
                    return
                except PyTritonModelControlError as error:
                    problem = str(error)
            if problem != before:
                LOGGER.warning(NOT_AGAIN, name, problem)

    def scale(self, name: str, count: int, server: ModelServer | None) -> None:
        """Change the number of a model's worker processes; errors as for :meth:`pytriton.base.TritonBase.scale`."""
        model = self.only_version(name, None, ", which all have as many instances")
        model.scale(count, lambda: server.load(name) if server is not None and model.loaded else None)
        if model.sockets is not None:
            self._workspace.forget(model.sockets, if_missing=True)
        self._workspace.keep(*KEPT)

    def serve_versions(self, name: str, versions: Sequence[int] | None, server: ModelServer | None) -> None:
        """Change which versions are served; errors as for :meth:`pytriton.base.TritonBase.serve_versions`."""
        models = self.versions(name)
        chosen = [self.only_version(name, version, "").version for version in versions or ()]
        if versions is not None and not chosen:
            raise PyTritonBadParameterError(f"model {name!r}: give at least one version, or unbind the model")
        before = models[0].version_policy
        self._set_policy(models, SpecificVersions(chosen) if chosen else None)
        try:
            if server is not None:
                server.load(name)
        except BaseException:
            self._set_policy(models, before)
            raise

    @staticmethod
    def _set_policy(versions: Sequence[Model], policy: VersionPolicy | None = None) -> None:
        """Write which of the versions are served; by default what their configuration says."""
        for model in versions:
            model.version_policy = policy or model.config.version_policy
            model.write_files()

    def _on_disconnect(self, model: Model) -> None:
        if model.loaded and self._running_server() is not None:
            _start_thread("pytriton-revive", self._revive_if_lost, model)

    def _revive_if_lost(self, model: Model) -> None:
        """Have the server load a model again whose proxies have gone by themselves: its requests fail."""
        time.sleep(DISMISSAL_GRACE_S if model.was_dismissed() else DEATH_GRACE_S)
        backoff, problem = Backoff(REVIVAL_PAUSE_S, LONGEST_REVIVAL_PAUSE_S), ""
        while (server := self._running_server()) is not None and self.is_lost(model):
            if server.is_alive():
                before, problem = problem, self._revive(server, model)
                if problem and problem != before:
                    LOGGER.warning(NOT_AGAIN, model.name, problem)
                if not problem:
                    backoff.reset()
            if not server.is_shared:
                return
            self._cleared.wait(backoff.next_s())

    def _revive(self, server: ModelServer, model: Model) -> str:
        """Load a lost model again; forget it if another process has replaced it in the server.

        A model that was unloaded, or is being loaded again, is only loaded into a server that others share.

        Returns:
            Why that was not possible, or nothing.
        """
        with self._lock:
            if self._running_server() is not server or not self.is_lost(model):
                return ""
            try:
                if server.is_model_ready(model.name, model.version):
                    if not server.is_own(model.name):
                        self._forget_replaced(server, model)
                        return ""
                    if model.was_dismissed() and not server.is_shared:
                        return ""
                    server.unload(model.name)
                elif not server.is_shared:
                    return ""
                lost_by = f"the server at {server.url} lost it" if server.is_shared else "its proxy in the server died"
                LOGGER.warning("model %s: %s; loading it again", model.name, lost_by)
                self.repair()
                server.load(model.name)
            except PyTritonModelControlError as error:
                return str(error) if server.is_ready() else ""  # else the server has gone, or is going
        return ""

    def _forget_replaced(self, server: ModelServer, model: Model) -> None:
        LOGGER.warning(
            "model %s: another process has loaded a model of this name into the server at %s; it is not bound here any "
            "more",
            model.name,
            server.url,
        )
        for version in self.versions(model.name):
            self.remove(version)

    def unload(
        self, server: ModelServer, models: Sequence[Model], timeout_s: float, is_idle: Callable[[], bool]
    ) -> None:
        """Have the server refuse new requests to versions of one model and answer those it has; then forget them.

        They are forgotten even if the server refuses, or has gone.

        Args:
            timeout_s: The longest wait for requests in flight.
            is_idle: As for :meth:`wait_drained`.
        """
        name = models[0].name
        others = [model for model in self._models if model.name == name and model.loaded and model not in models]
        for model in models:
            model.loaded = False
        try:
            if others:
                for model in models:
                    model.remove_files()
                self._set_policy(others)
                server.load(name)  # without the versions whose files have gone
            else:
                server.unload(name)
            if not self.wait_drained(server, time.monotonic() + timeout_s, is_idle, models):
                LOGGER.warning("model %s: its requests in flight were ended after %.0f s", name, timeout_s)
        finally:
            for model in models:
                self.remove(model)

    def wait_drained(
        self,
        server: ModelServer,
        deadline: float,
        is_idle: Callable[[], bool],
        unloaded: Sequence[Model] | None = None,
    ) -> bool:
        """Wait until models that the server unloads have answered all requests that it had accepted.

        Then the server ends the proxies and reports the models as unloaded. It does neither while a client keeps a gRPC
        stream open, or after one was cancelled in an unlucky moment, and it does so 1 s late with the Python proxy. So
        it is also enough if the instances had nothing to do for a second, and nothing else is under way.

        Args:
            deadline: In :func:`time.monotonic` seconds.
            is_idle: Whether nothing is under way, as far as can be seen from outside.
            unloaded: The models; default: all.

        Returns:
            False at the deadline.
        """
        models = self._models if unloaded is None else unloaded
        next_state_poll = time.monotonic() + STATE_POLL_S
        while held := [model for model in models if not model.wait_disconnected(0.0)]:
            quiet_s = QUIET_S + max(model.queue_delay_s() for model in held)
            if all(model.quiet_s() > quiet_s for model in held) and is_idle():
                break
            now = time.monotonic()
            if now > deadline or not any(model.is_alive() for model in models):  # ended by a second signal
                return False
            if now > next_state_poll:
                next_state_poll = now + STATE_POLL_S
                with suppress(PyTritonModelControlError):  # the server ends, and its proxies with it
                    if server.are_unloaded([(model.name, model.version) for model in models]):
                        break
            soon = min(deadline, time.monotonic() + POLL_S)
            all(model.wait_disconnected(soon) for model in models)
        return True

    def remove(self, model: Model) -> None:
        """End a model's workers, remove its files and forget it."""
        model.close()
        if model.sockets is not None:
            self._workspace.forget(model.sockets)
        self._models.remove(model)
        self._by_name[model.name.lower()].remove(model)
        self._set_policy(self._by_name[model.name.lower()])

    def interrupt(self) -> None:
        """End all waits for starts and rebinds, as :meth:`Model.interrupt`. From any thread."""
        for model in self:
            model.interrupt()

    def disconnect(self) -> None:
        """End all workers, each when its callable has returned. From any thread."""
        models = list(self)
        for model in models:
            model.disconnect()
        for model in models:
            model.join()

    def clear(self) -> None:
        """Forget the models."""
        self._models.clear()
        self._by_name.clear()
        self._cleared.set()


def _start_thread(name: str, target: Callable[[Model], None], model: Model) -> None:
    keep_running(lambda: target(model), name)


def _call_in_parallel(calls: Sequence[Callable[[], object]]) -> None:
    """Make calls on up to PARALLEL_LOADS threads, and return when all have ended.

    The executors of :mod:`concurrent.futures` take no work once the main thread has ended, though others go on.

    Raises:
        Exception: The error of the first call that failed.
    """
    errors: list[Exception | None] = [None] * len(calls)
    waiting = iter(enumerate(calls))

    def work() -> None:
        for index, call in waiting:
            try:
                call()
            except Exception as error:
                errors[index] = error

    helpers = [
        threading.Thread(target=work, name=f"pytriton-load-{number}", daemon=True)
        for number in range(1, min(len(calls), PARALLEL_LOADS))
    ]
    for helper in helpers:
        helper.start()
    try:
        work()
    finally:
        for helper in helpers:
            helper.join()
    for error in filter(None, errors):
        raise error
