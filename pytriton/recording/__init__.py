"""Recorded requests: their files, written and read.

:func:`read` gives the requests of a recording that :class:`pytriton.model_config.Recording` describes.
"""

from pytriton.recording.format import RecordedRequest, RecordingError
from pytriton.recording.reader import RecordedFiles, read

__all__ = ["RecordedFiles", "RecordedRequest", "RecordingError", "read"]
