"""The folder of one server: its model store and communication files."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import warnings
import weakref
from pathlib import Path

from pytriton import constants, forks
from pytriton.exceptions import PyTritonValidationError

__all__ = ["SERVER_PREFIX", "TEMPORARY_FOLDERS", "CleanupWarning", "Workspace"]

PREFIX = "workspace_"
LOCK = ".lock"
SERVER_PREFIX = "pytriton-"  # of folders of servers that we launch, whose shared memory begins with the folder's name
TEMPORARY_FOLDERS = "temporary-folders"  # the file in them for names of what those servers have below /tmp
SHARED_MEMORY = Path("/dev/shm")


class CleanupWarning(UserWarning):
    """A workspace could not be removed, and files are left on disk."""


class Workspace:
    """A new folder, open to its owner only, with a ``model-store`` folder in it.

    Args:
        workspace_path: The folder to create; default: ``workspace_<random>`` below ``PYTRITON_HOME``, where this also
            removes the folders of killed processes.

    Raises:
        FileExistsError: ``workspace_path`` exists.
        PyTritonValidationError: Nothing can be created below ``PYTRITON_HOME``.

    Attributes:
        model_store_path: The folder that the server loads models from.
        shared_memory_prefix: For names of shared memory of a server in this process, which is removed with the folder.
    """

    def __init__(self, workspace_path: str | os.PathLike[str] | None = None) -> None:
        # Absolute, because the server need not share the working directory.
        self._path = (_temporary() if workspace_path is None else _created(Path(workspace_path))).absolute()
        self._is_below_home = workspace_path is None
        self._descriptors: dict[Path, int] = {}  # of the folder, its mark, and what is kept
        weakref.finalize(self, _close_all, self._descriptors)
        self._hold()
        self._is_inherited = False
        self.model_store_path = self._path / "model-store"
        self.model_store_path.mkdir()
        self.shared_memory_prefix = _shared_memory_prefix(self._path)
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, leave the folder to the process that made it, also if that is killed."""
        self._is_inherited = True
        forks.abandon(*self._descriptors.values())

    def __repr__(self) -> str:
        return f"Workspace({str(self._path)!r})"

    @property
    def path(self) -> Path:
        """Absolute path of the folder."""
        return self._path

    def exists(self) -> bool:
        """Whether the folder is there: true from construction until ``clean``."""
        return self._path.exists()

    def is_empty(self) -> bool:
        """Whether nothing but hidden entries lies at the top; a new workspace holds its model store."""
        return not self.exists() or all(entry.name.startswith(".") for entry in self._path.iterdir())

    def _hold(self) -> None:
        """Have cleaners leave the folder alone: systemd-tmpfiles respects a lock on it."""
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._replace(self._path, folder)
        if self._is_below_home:
            self._replace(self._path / LOCK, _locked(self._path))

    def _replace(self, path: Path, descriptor: int) -> None:
        before = self._descriptors.get(path)
        self._descriptors[path] = descriptor
        if before is not None:
            os.close(before)

    def keep(self, *patterns: str) -> None:
        """Keep sockets and shared files of this process beyond their removal by a cleaner, for :meth:`repair`.

        Args:
            patterns: Of paths below the folder.
        """
        if self._is_inherited or not self.exists():
            return
        found = {path for pattern in patterns for path in self._path.glob(pattern) if not path.is_symlink()}
        for path in found:
            with contextlib.suppress(OSError):  # it was removed just now
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                if path in self._descriptors and os.path.sameopenfile(descriptor, self._descriptors[path]):
                    os.close(descriptor)
                else:
                    self._replace(path, descriptor)

    def forget(self, prefix: Path, *, if_missing: bool = False) -> None:
        """Keep no longer what was removed on purpose.

        Args:
            prefix: Of the paths, less a suffix that begins with a dot.
            if_missing: Only those that are not there, while their folder is.
        """
        for path in [path for path in self._descriptors if str(path).startswith(f"{prefix}.")]:
            if not if_missing or (path.parent.exists() and not os.path.lexists(path)):
                os.close(self._descriptors.pop(path))

    def repair(self) -> bool:
        """Make the folder again, with what :meth:`keep` has kept, as far as something is missing.

        A socket without a name cannot get one again, but a link to a descriptor of it serves as well.

        Returns:
            Whether something was missing.
        """
        if self._is_inherited:
            return False
        missing = not self.model_store_path.exists()
        if missing:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.model_store_path.mkdir(exist_ok=True)
            if not os.path.samestat(self._path.stat(), os.fstat(self._descriptors[self._path])):
                self._hold()
        for path, descriptor in self._descriptors.items():
            if not os.path.lexists(path):
                missing = True
                path.parent.mkdir(mode=0o700, exist_ok=True)
                path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
        return missing

    def clean(self) -> None:
        """Remove the folder; issues a ``CleanupWarning`` when something is left. May be called again.

        With a folder below ``PYTRITON_HOME`` goes its shared memory, which a server in this process leaves if it cannot
        be stopped. In a process that was forked from this one, nothing happens.
        """
        if self._is_inherited:
            return
        if self._is_below_home:
            _remove_shared_memory(self._path)
        try:
            shutil.rmtree(self._path)
        except FileNotFoundError:
            shutil.rmtree(self._path, ignore_errors=True)  # something vanished meanwhile
        except OSError as error:
            # A file that cannot be removed, or that vanished meanwhile, is no reason to leave the others.
            shutil.rmtree(self._path, ignore_errors=True)
            if os.path.lexists(self._path):
                text = f"cannot remove the workspace {self._path}: {error}; remove it by hand"
                warnings.warn(text, CleanupWarning, stacklevel=2)


def _close_all(descriptors: dict[Path, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _created(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise FileExistsError(f"the workspace {path} exists; give a path that does not exist yet") from error
    return path


def _temporary() -> Path:
    home = constants.PYTRITON_HOME
    try:
        home.mkdir(parents=True, exist_ok=True)
        _sweep(home)
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
    except OSError as error:
        raise PyTritonValidationError(
            f"cannot create a workspace below PYTRITON_HOME={home}: {error}; "
            "set the environment variable PYTRITON_HOME to a writable directory before Python starts"
        ) from error


def _locked(folder: Path) -> int:
    """Mark a folder as in use while this process lives; the descriptor of the mark, to be closed."""
    # Locked under another name first, so that no process finds the mark of a living process unlocked.
    new = folder / f"{LOCK}.new"
    descriptor = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: without the mark, the folder is never swept
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / LOCK)
    return descriptor


def _sweep(home: Path) -> None:
    """Remove the temporary workspaces of processes that ended without a chance to."""
    for lock in home.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError), open(lock, opener=_open_mark) as file:  # in use, or just being removed
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_shared_memory(lock.parent)
            for server in lock.parent.glob(f"{SERVER_PREFIX}*"):  # whose guard was killed, too
                _remove_shared_memory(server)
                _remove_noted(server / TEMPORARY_FOLDERS)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _remove_shared_memory(folder: Path) -> None:
    for path in SHARED_MEMORY.glob(f"{glob.escape(_shared_memory_prefix(folder))}*"):
        with contextlib.suppress(OSError):  # another user's, with any name
            path.unlink()


def _remove_noted(notes: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in notes.read_bytes().split(b"\0")[:-1]:
            shutil.rmtree(os.fsdecode(folder), ignore_errors=True)


def _shared_memory_prefix(folder: Path) -> str:
    return f"{folder.name}-"


def _open_mark(path: str, flags: int) -> int:
    """Open what may be anything, where others can write to the home, without waiting and without following it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
