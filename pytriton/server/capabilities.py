"""What a server can do for the models that are bound to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pytriton.config import TritonConfig
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["ServerCapabilities"]


@dataclass(frozen=True)
class ServerCapabilities:
    """What ``bind`` has to know of a server. The defaults are for a server that another process launched.

    Attributes:
        has_native_backend: Whether the server has our backend, because this process launches it.
        forwards_headers: Whether the server may put headers among requests' parameters.
        trace_config: How the server traces requests, if that is known.
        caches: Whether the server keeps responses.
        limits: Whether instances wait for the resources of their rate limiters.
        host_policies: Names of the server's host policies; None if they are not known.
        cache_option: What to set for ``caches``.
        limit_option: What to set for ``limits``.
        host_policy_option: What to set for ``host_policies``.
    """

    has_native_backend: bool = False
    forwards_headers: bool = True
    trace_config: Sequence[str] | None = None
    caches: bool = True
    limits: bool = True
    host_policies: Collection[str] | None = None
    cache_option: str = "TritonConfig.cache_config"
    limit_option: str = "TritonConfig.rate_limit to 'execution_count'"
    host_policy_option: str = "TritonConfig.host_policy"

    @classmethod
    def of(cls, config: TritonConfig) -> ServerCapabilities:
        """The capabilities of a server that this process launches with a configuration."""
        return cls(
            has_native_backend=True,
            forwards_headers=bool(config.http_header_forward_pattern or config.grpc_header_forward_pattern),
            trace_config=config.trace_config,
            caches=bool(config.cache_config),
            limits=config.rate_limit == "execution_count",
            host_policies={policy.partition(",")[0] for policy in config.host_policy or ()},
        )

    def ignored_options(self, model: TritonModelConfig) -> Iterator[str]:
        """Each option of a model that the server would silently ignore, as a sentence that says what to set."""
        if model.response_cache is not None and model.response_cache.enable and not self.caches:
            yield f"it asks for a response cache, but the server has none; set {self.cache_option}"
        groups = model.instance_groups or ()
        if any(group.rate_limiter for group in groups) and not self.limits:
            yield f"it has a rate limiter, but the server does not limit; set {self.limit_option}"
        if self.host_policies is not None:
            for name in sorted({group.host_policy for group in groups if group.host_policy} - {*self.host_policies}):
                yield (
                    f"it names the host policy {name!r}, which the server does not have; add it to "
                    f"{self.host_policy_option}"
                )
