"""Endpoints of Vertex AI and SageMaker: what the clouds say in the environment, and what the server demands of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pytriton.config import TritonConfig
from pytriton.constants import TRITON_LOCAL_IP
from pytriton.exceptions import PyTritonValidationError

__all__ = ["check_clouds", "on_vertex_ai"]

LOGGER = logging.getLogger(__name__)

SAGEMAKER_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}


def on_vertex_ai(config: TritonConfig, environment: Mapping[str, str] = os.environ) -> TritonConfig:
    """A configuration that says what the server would otherwise conclude from the platform's environment.

    With ``AIP_MODE=PREDICTION`` it opens Vertex AI's endpoint, and neither HTTP's nor gRPC's. We load models through
    one of these, which is therefore opened to this machine alone.

    Raises:
        PyTritonValidationError: ``AIP_HTTP_PORT`` is not a number.
    """
    chosen: dict[str, Any] = {}
    if environment.get("AIP_MODE") == "PREDICTION":
        chosen["allow_vertex_ai"] = True
        if config.allow_http is None:
            chosen |= {"allow_http": True, "http_address": TRITON_LOCAL_IP}
        if config.allow_grpc is None:
            chosen |= {"allow_grpc": config.allow_http is False, "grpc_address": TRITON_LOCAL_IP}
    if "AIP_HTTP_PORT" in environment:
        chosen["vertex_ai_port"] = _port(environment["AIP_HTTP_PORT"])
    return replace(config, **{name: value for name, value in chosen.items() if getattr(config, name) is None})


def check_clouds(config: TritonConfig, models: Collection[str], environment: Mapping[str, str] = os.environ) -> None:
    """Warn of what requests would fail for; fail for what the server would crash on.

    Args:
        config: Of the server.
        models: Names of those that it loads while it starts.
        environment: Of the server.

    Raises:
        PyTritonValidationError: Vertex AI's endpoint is to be opened, and lacks a route or its default model.
    """
    if config.allow_sagemaker and SAGEMAKER_MODEL not in environment:
        LOGGER.warning("SageMaker's /invocations need the name of their model in the environment: %s", SAGEMAKER_MODEL)
    if not config.allow_vertex_ai:
        return
    missing = [f"{name}={example}" for name, example in ROUTES.items() if not environment.get(name)]
    if missing:
        raise PyTritonValidationError(
            f"allow_vertex_ai needs the paths of its endpoint in the environment, such as {' '.join(missing)}; "
            "Vertex AI sets them in its containers"
        )
    default, names = config.vertex_ai_default_model, ", ".join(sorted(models)) or "none"
    if default is not None and default not in models:
        raise PyTritonValidationError(
            f"vertex_ai_default_model is {default!r}, which the server does not load at its start; it loads: {names}. "
            "Bind that model before run() or serve(), with VertextAILifecyclePolicy"
        )
    if default is None and len(models) != 1:
        raise PyTritonValidationError(
            f"the server loads {len(models)} models at its start ({names}), so Vertex AI's endpoint needs "
            "TritonConfig.vertex_ai_default_model; bind that model before run() or serve(), with "
            "VertextAILifecyclePolicy"
        )


def _port(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise PyTritonValidationError(f"AIP_HTTP_PORT in the environment is {text!r}; give a port's number") from error
