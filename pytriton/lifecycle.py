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
        restart_server: Launch the server again, with all its models, when it has died; otherwise ``serve`` returns.
    """

    launch_triton_on_startup: bool = True
    local_model_store: bool = False
    restart_server: bool = False


DefaultTritonLifecyclePolicy = TritonLifecyclePolicy()
"""What ``Triton`` does if nothing else is said."""

VertextAILifecyclePolicy = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)
"""For Vertex AI, whose endpoint does not start without its default model; spelled as in the API that we keep."""
