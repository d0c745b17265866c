"""The exact versions of what an image installs: those that are installed here."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from pytriton.exceptions import PyTritonValidationError

__all__ = ["OWN", "distributions_of", "download", "locked", "text_of"]

OWN = "pytriton"
IN_PLACE_OF = {"xgboost": "xgboost-cpu", "mlflow": "mlflow-skinny"}  # smaller ones, which do


def distributions_of(modules: Iterable[str]) -> set[str]:
    """Names of the distributions that have top-level modules.

    Raises:
        PyTritonValidationError: A module is not installed.
    """
    known = packages_distributions()
    if missing := sorted(name for name in modules if name not in known):
        raise PyTritonValidationError(
            f"the module {missing[0]!r} is not installed here, so that its version is not known; install it, or put it "
            "beside the program"
        )
    return {min(known[name], key=lambda each: (each in IN_PLACE_OF, each)) for name in modules}


def locked(names: Iterable[str], extras: Collection[str]) -> dict[str, str]:
    """The versions of distributions and of all that they need, by name, without our own.

    Args:
        names: Requirements, such as ``numpy`` or ``uvicorn[standard]``; versions in them are not looked at.
        extras: Of our own distribution.

    Raises:
        PyTritonValidationError: Something is not installed.
    """
    found: dict[str, str] = {}
    waiting = [Requirement(f"{OWN}[{','.join(sorted(extras))}]"), *map(_requirement, names)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        installed = _installed(wanted)
        name = canonicalize_name(installed.metadata["Name"])
        if name != OWN:
            found[name] = installed.version
        for extra in ("", *wanted.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += _needed_by(installed, extra)
    return dict(sorted(found.items()))


def text_of(versions: Mapping[str, str], hashes: Mapping[str, Collection[str]] | None = None) -> str:
    """The lock file, as pip reads it.

    Args:
        hashes: SHA-256 of the wheels by distribution, if they are vendored.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    lines = [f"# Made by pytriton build, for Python {python} and {sysconfig.get_platform()}: what was installed there."]
    for name, version in versions.items():
        each = sorted((hashes or {}).get(name, ()))
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in each)]))
    return "\n".join(lines) + "\n"


def download(lock: Path, folder: Path) -> dict[str, set[str]]:
    """Put the wheels of a lock file into a folder; returns their SHA-256 by distribution.

    Raises:
        PyTritonValidationError: pip cannot get one.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", f"--requirement={lock}", f"--dest={folder}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise PyTritonValidationError(f"pip cannot get the wheels of the lock file: {(lines or ['no message'])[0]}")
    hashes: dict[str, set[str]] = {}
    for each in sorted(folder.glob("*.whl")):
        name = parse_wheel_filename(each.name)[0]
        hashes.setdefault(name, set()).add(hashlib.sha256(each.read_bytes()).hexdigest())
    return hashes


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise PyTritonValidationError(f"{text!r} is no name of a distribution: {error}") from error


def _installed(wanted: Requirement) -> Distribution:
    for name in (wanted.name, IN_PLACE_OF.get(canonicalize_name(wanted.name), wanted.name)):
        try:
            return distribution(name)
        except PackageNotFoundError:
            continue
    raise PyTritonValidationError(f"{wanted.name} is not installed here, so that its version is not known; install it")


def _needed_by(installed: Distribution, extra: str) -> Iterator[Requirement]:
    for text in installed.requires or ():
        wanted = Requirement(text)
        needs_extra = wanted.marker is not None and re.search(r"\bextra\b", str(wanted.marker)) is not None
        if needs_extra == bool(extra) and (wanted.marker is None or wanted.marker.evaluate({"extra": extra})):
            yield wanted
