"""When a server is launched, and from where it loads the bound models."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DefaultTritonLifecyclePolicy", "TritonLifecyclePolicy", "VertextAILifecyclePolicy"]


@dataclass(frozen=True)
class TritonLifecyclePolicy:
    """The stages of a server's life.

    Args:
        launch_triton_on_startup: Launch the server on entering the ``with`` block; otherwise at ``run`` or ``serve``.
        local_model_store: Have the server load the models while it starts, so that it is not live without them;
            otherwise it starts empty, and each model is loaded through the repository API.
        restart_server: Whether to launch the server again, with all its models, when it has died. None: after it was
            killed by a signal (a crash, the kernel's OOM killer, ``kill -9``), but not after it has exited by itself.
            True: after either. False: never. A server that is not launched again ends ``serve``, and so does one that
            would be launched more than five times in a minute.
    """

    launch_triton_on_startup: bool = True
    local_model_store: bool = False
    restart_server: bool | None = None


DefaultTritonLifecyclePolicy = TritonLifecyclePolicy()
"""What ``Triton`` does if nothing else is said."""

VertextAILifecyclePolicy = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)
"""For Vertex AI, whose endpoint does not start without its default model; spelled as in the API that we keep."""
