"""Which of a model's versions the server serves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytriton.exceptions import PyTritonBadParameterError

__all__ = ["AllVersions", "LatestVersions", "SpecificVersions", "VersionPolicy"]


@dataclass
class AllVersions:
    """Every version is served."""

    def served(self, versions: Iterable[int]) -> set[int]:
        """Those of ``versions`` that are served."""
        return set(versions)


@dataclass
class LatestVersions:
    """The versions with the highest numbers are served.

    Args:
        count: How many.
    """

    count: int = 1

    def served(self, versions: Iterable[int]) -> set[int]:
        """Those of ``versions`` that are served."""
        return set(sorted(versions)[-self.count :])


@dataclass
class SpecificVersions:
    """The named versions are served.

    Args:
        versions: Their numbers.

    Raises:
        PyTritonBadParameterError: ``versions`` is no list.
    """

    versions: list[int]

    def __post_init__(self) -> None:
        if not isinstance(self.versions, (list, tuple)):
            raise PyTritonBadParameterError(f"versions must be a list such as [1, 3], got {self.versions!r}")
        self.versions = sorted(self.versions)

    def served(self, versions: Iterable[int]) -> set[int]:
        """Those of ``versions`` that are served."""
        return set(versions) & set(self.versions)


VersionPolicy = AllVersions | LatestVersions | SpecificVersions
