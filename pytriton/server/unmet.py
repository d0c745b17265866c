"""What a model asks for and the server, as it is configured, would silently not do."""

from __future__ import annotations

from collections.abc import Iterator

from pytriton.config import TritonConfig
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["unmet_wishes"]


def unmet_wishes(model: TritonModelConfig, server: TritonConfig) -> Iterator[str]:
    """Each wish that the server will ignore, as a sentence that says what to set."""
    if model.response_cache is not None and model.response_cache.enable and not server.cache_config:
        yield "it asks for a response cache, but the server has none; set TritonConfig.cache_config"
    groups = model.instance_groups or ()
    if any(group.rate_limiter for group in groups) and server.rate_limit != "execution_count":
        yield "it has a rate limiter, but the server does not limit; set TritonConfig.rate_limit to 'execution_count'"
    known = {policy.partition(",")[0] for policy in server.host_policy or ()}
    for name in sorted({group.host_policy for group in groups if group.host_policy} - known):
        yield f"it names the host policy {name!r}, which the server does not have; add it to TritonConfig.host_policy"
