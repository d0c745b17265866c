"""CURVE keys: who may connect, and with whom."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
import zmq.auth
import zmq.auth.thread

from pytriton.exceptions import PyTritonBadParameterError

__all__ = ["WorkerKeys", "load_key", "make_keys", "secure_server"]

SECRET = ".key_secret"
PUBLIC = ".key"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def make_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a key pair: ``NAME.key`` may be given to anybody, ``NAME.key_secret`` is readable by this user alone.

    Returns:
        Both files, the public one first.

    Raises:
        PyTritonBadParameterError: There is such a file, or the name is none of a file.
    """
    if not _NAME.fullmatch(name):
        raise PyTritonBadParameterError(f"{name!r} is no name of keys; use letters, digits, dots, dashes, underscores")
    for suffix in (PUBLIC, SECRET):
        if (folder / f"{name}{suffix}").exists():
            raise PyTritonBadParameterError(f"{folder / f'{name}{suffix}'} exists; choose another name or folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mask = os.umask(0o077)
    try:
        public, secret = zmq.auth.create_certificates(str(folder), name)
    finally:
        os.umask(mask)
    Path(public).chmod(0o644)
    return Path(public), Path(secret)


def load_key(path: Path, *, secret: bool) -> tuple[bytes, bytes | None]:
    """The public key of a file, and its secret key.

    Raises:
        PyTritonBadParameterError: It has none, or others may read the secret one.
    """
    try:
        if secret and path.stat().st_mode & 0o007:  # its group may: secrets of Kubernetes have one
            raise PyTritonBadParameterError(f"others may read the secret key in {path}; run chmod 600 {path}")
        public_key, secret_key = zmq.auth.load_certificate(str(path))
    except (OSError, ValueError) as error:
        raise PyTritonBadParameterError(f"there is no key in {path}: {error}") from error
    if secret and secret_key is None:
        raise PyTritonBadParameterError(f"{path} has no secret key; give the file that ends with {SECRET}")
    return public_key, secret_key


@dataclass(frozen=True)
class WorkerKeys:
    """The keys of a worker, and the public key of the server's side."""

    public: bytes
    secret: bytes = field(repr=False)
    server: bytes

    @classmethod
    def load(cls, key: Path, server_key: Path) -> WorkerKeys:
        """Read the worker's secret key and the server's public key; raises as :func:`load_key`."""
        public, secret = load_key(key, secret=True)
        return cls(public, secret or b"", load_key(server_key, secret=False)[0])

    def secure(self, connection: zmq.Socket[bytes]) -> None:
        """Set the keys of a worker's socket."""
        connection.curve_publickey, connection.curve_secretkey = self.public, self.secret
        connection.curve_serverkey = self.server


def secure_server(context: zmq.Context[Any], connection: zmq.Socket[bytes], key: Path, worker_keys: Path) -> Any:
    """Set the keys of the server's side; returns the authenticator, which is to be stopped.

    Args:
        key: The server's secret key.
        worker_keys: A folder with the public keys of the workers that may connect.
    """
    public, secret = load_key(key, secret=True)
    authenticator = zmq.auth.thread.ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve(domain="*", location=str(worker_keys))
    connection.curve_publickey, connection.curve_secretkey = public, secret or b""
    connection.curve_server = True
    return authenticator
