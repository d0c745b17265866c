"""The protocols of a server."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ProtocolType"]


class ProtocolType(IntEnum):
    """How to speak to a server."""

    HTTP = 0
    GRPC = 1

    @classmethod
    def from_str(cls, value: str) -> ProtocolType:
        """The protocol of a name, in any letter case.

        Raises:
            ValueError: There is none of that name.
        """
        name = value.upper()
        if name not in cls.__members__:
            raise ValueError(f"unexpected protocol {value!r}, expecting HTTP or gRPC")
        return cls[name]
