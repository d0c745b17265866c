"""A hosting process for tests/server/test_endings.py: serves a few models until it is ended."""

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from pytriton.decorators import batch
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonLifecyclePolicy
from pytriton.workers import Processes


@batch
def double(x):
    return [x * 2]


@batch
def gated(x):
    """Answers when the file `open` exists in the folder of the test."""
    (FOLDER / "entered").touch()
    while not (FOLDER / "open").exists():
        threading.Event().wait(0.01)
    return [x * 2]


@batch
def fatal(x):
    raise PyTritonUnrecoverableError("the device is lost")


@batch
def stopper(x):
    triton.stop()
    return [x * 2]


def forking(requests):
    """Answers with the id of a child, which does nothing for ever."""
    if not (child := os.fork()):
        while True:
            time.sleep(0.05)  # and not signal.pause(), which sleeps on if a signal came just before
    return [{"y": request["x"] * 0 + child} for request in requests]


def hang():
    (FOLDER / "ready").touch()
    threading.Event().wait()


FOLDER = Path(sys.argv[1])
faulthandler.register(signal.SIGUSR1)  # for a test that waits for it in vain
if "blocked" in sys.argv:  # for the threads and processes that are started from here on
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGTERM})
if "ignored" in sys.argv:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
logging.basicConfig(level=logging.INFO)
triton = Triton(
    config=TritonConfig(**json.loads(sys.argv[2])),
    triton_lifecycle_policy=TritonLifecyclePolicy(restart_server="final" not in sys.argv),
)
if "workers" in sys.argv:  # the functions are the main module's, which has no guard
    share = "shared" in sys.argv
    functions = {"double": Processes(lambda: double, count=2, share=share)}
    functions["gated"] = Processes(lambda: gated, count=1, share=share)
    functions["fatal"] = Processes(lambda: fatal, count=1, share=share)
elif "hang" in sys.argv:
    functions = {"double": Processes(hang, count=1, stop_timeout_s=0.5)}
else:
    functions = {function.__name__: function for function in (double, gated, fatal, stopper, forking)}
for name, function in functions.items():
    tensor = Tensor(name="x", shape=(-1,), dtype=np.float32)
    triton.bind(
        name,
        function,
        inputs=[tensor],
        outputs=[Tensor(name="y", shape=(-1,), dtype=np.float32)],
        config=ModelConfig(max_batch_size=2),
    )
if "hang" in sys.argv:
    triton.serve()
    sys.exit(print("serve returned", flush=True))
triton.run()
(FOLDER / "ready").touch()
if "leave" in sys.argv:
    while not (FOLDER / "seen").exists():
        time.sleep(0.01)
    sys.exit(3)
triton.serve(monitoring_period_s=0.2)
print("serve returned", flush=True)
