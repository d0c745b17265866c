import pytest

from pytriton.config import TritonConfig
from pytriton.model_config import InstanceGroup, RateLimiter
from pytriton.model_config.triton_model_config import ResponseCache, TritonModelConfig
from pytriton.server.installation import BUNDLED, Installation
from pytriton.server.model_server import ServerCapabilities

CACHED = TritonModelConfig("m", response_cache=ResponseCache(True))
LIMITED = TritonModelConfig("m", instance_groups=[InstanceGroup(1, rate_limiter=RateLimiter())])
PLACED = TritonModelConfig("m", instance_groups=[InstanceGroup(1, host_policy="a"), InstanceGroup(1, host_policy="b")])


@pytest.mark.parametrize(
    ("model", "server", "missing"),
    [
        (CACHED, TritonConfig(), ["set TritonConfig.cache_config"]),
        (CACHED, TritonConfig(cache_config=["local,size=1048576"]), []),
        (LIMITED, TritonConfig(rate_limit="off"), ["set TritonConfig.rate_limit"]),
        (LIMITED, TritonConfig(rate_limit="execution_count"), []),
        (PLACED, TritonConfig(host_policy=["a,numa-node=0"]), ["'b', which the server does not have"]),
        (PLACED, TritonConfig(host_policy=["a,numa-node=0", "b,numa-node=1"]), []),
        (TritonModelConfig("m", response_cache=ResponseCache(False)), TritonConfig(), []),
    ],
)
def test_what_the_server_would_ignore_is_told_with_what_to_set(model, server, missing):
    ignored = [*ServerCapabilities.of(server, Installation(BUNDLED)).ignored_options(model)]
    assert len(ignored) == len(missing)
    assert all(part in option for part, option in zip(missing, ignored, strict=True))


@pytest.mark.parametrize("model", [CACHED, LIMITED, PLACED])
def test_nothing_is_told_of_a_server_of_which_nothing_is_known(model):
    assert [*ServerCapabilities().ignored_options(model)] == []
