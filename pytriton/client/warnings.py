"""Warnings of the clients."""

__all__ = ["NotSupportedTimeoutWarning", "PyTritonWarning"]


class PyTritonWarning(UserWarning):
    """Root of the clients' warnings."""


class NotSupportedTimeoutWarning(PyTritonWarning):
    """A timeout was given where it cannot be kept."""
