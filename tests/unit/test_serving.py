"""What a signal does to a program that serves, without a server."""

import signal
import threading
from types import SimpleNamespace

from pytriton.lifecycle import Lifecycle
from pytriton.serving import Serving


def test_a_signal_ends_the_wait_also_if_it_has_interrupted_the_main_thread_while_that_held_the_events_lock():
    interrupted = threading.Event()
    lifecycle = Lifecycle("Triton", lambda: None)
    models = SimpleNamespace(interrupt=interrupted.set)
    serving = Serving(lifecycle, models, None, lambda: None, lambda: None)
    with lifecycle.wake._cond:  # as wait() holds it for a moment
        serving.on_signal(signal.SIGTERM)
    assert lifecycle.wake.wait(60)
    assert interrupted.wait(60)
