"""What a model asks for and the server, as it is configured, would silently not do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pytriton.config import TritonConfig
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["Abilities", "unmet_wishes"]


@dataclass(frozen=True)
class Abilities:
    """What a server does for models that ask for it, and what to set to have it done.

    Attributes:
        caches: Whether it keeps responses.
        limits: Whether it has instances take turns.
        host_policies: Names of those that it has.
        caches_by: The option for the first.
        limits_by: The option for the second, and its value.
        host_policies_by: The option for the third.
    """

    caches: bool
    limits: bool
    host_policies: Collection[str]
    caches_by: str = "TritonConfig.cache_config"
    limits_by: str = "TritonConfig.rate_limit to 'execution_count'"
    host_policies_by: str = "TritonConfig.host_policy"

    @staticmethod
    def of(server: TritonConfig) -> Abilities:
        """Those of a server with this configuration."""
        policies = {policy.partition(",")[0] for policy in server.host_policy or ()}
        return Abilities(bool(server.cache_config), server.rate_limit == "execution_count", policies)


def unmet_wishes(model: TritonModelConfig, server: Abilities) -> Iterator[str]:
    """Each wish that the server will ignore, as a sentence that says what to set."""
    if model.response_cache is not None and model.response_cache.enable and not server.caches:
        yield f"it asks for a response cache, but the server has none; set {server.caches_by}"
    groups = model.instance_groups or ()
    if any(group.rate_limiter for group in groups) and not server.limits:
        yield f"it has a rate limiter, but the server does not limit; set {server.limits_by}"
    for name in sorted({group.host_policy for group in groups if group.host_policy} - {*server.host_policies}):
        yield (
            f"it names the host policy {name!r}, which the server does not have; add it to {server.host_policies_by}"
        )
