"""The benchmark's models: their tensors, as names and dtypes; each of shape ``(-1,)`` besides the batch axis."""

import numpy as np

FLOATS, STRINGS = {"": np.float32}, {"": bytes}
# Suffixes of INPUT and OUTPUT, with their dtypes. A model "double-17" is a copy of "double".
TENSORS = {
    "double": FLOATS,
    "pair": {"": np.float32, "_2": np.int64},
    "echo": STRINGS,
    "stream": FLOATS,
    "errant": FLOATS,
    "busy": FLOATS,
}
MAX_BATCH_SIZE = 128


def kind(name: str) -> str:
    """The model that this one is a copy of."""
    return name.partition("-")[0]
