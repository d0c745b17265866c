"""Encrypted connections: Triton's gRPC endpoint with TLS, and HTTPS through a proxy."""

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.auth import Tls
from pytriton.client.exceptions import PyTritonClientTimeoutError, PyTritonClientTlsError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.processes import wait_for_error
from tests.server.relay import relay
from tests.server.tls import Certificates

pytestmark = pytest.mark.either_proxy

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def serve(config):
    triton = Triton(config=config)
    tensors = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in ("x", "y")]
    triton.bind("m", lambda requests: [{"y": request["x"]} for request in requests], *tensors, config=ModelConfig())
    return triton


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Of server, client, and somebody whom neither trusts."""
    return {name: Certificates.in_folder(tmp_path_factory.mktemp(name)) for name in ("server", "client", "stranger")}


@pytest.fixture(scope="module", params=["http", "grpc"])
def plain_url(request, certificates):
    """Of a server that proves who it is."""
    server = certificates["server"]
    options = {"grpc_server_cert": server.chain, "grpc_server_key": server.key, "grpc_use_ssl": True}
    with local_config(**options) as config, serve(config):
        if request.param == "grpc":
            yield f"grpc://{LOCALHOST}:{config.grpc_port}"
            return
        with relay(config.http_port, server.of_server()) as https:
            yield f"http://{LOCALHOST}:{https.port}"


@pytest.fixture(scope="module", params=["http", "grpc"])
def mutual_url(request, certificates):
    """Of a server that wants to know who its clients are, too."""
    server, client = certificates["server"], certificates["client"]
    options = {
        "grpc_server_cert": server.chain,
        "grpc_server_key": server.key,
        "grpc_root_cert": client.root,
        "grpc_use_ssl_mutual": True,
    }
    with local_config(**options) as config, serve(config):
        if request.param == "grpc":
            yield f"grpc://{LOCALHOST}:{config.grpc_port}"
            return
        with relay(config.http_port, server.of_server(client.root)) as https:
            yield f"http://{LOCALHOST}:{https.port}"


def infer(url, tls, **options):
    with ModelClient(url, "m", tls=tls, **options) as client:
        return client.infer_batch(X)["y"]


def trusting(certificates, server="server", client=None):
    own = {} if client is None else {"private_key": certificates[client].key}
    chain = {} if client is None else {"certificate_chain": str(certificates[client].chain)}
    return Tls(root_certificates=certificates[server].root, **own, **chain)


def test_client_that_trusts_the_server_calls_it(plain_url, certificates):
    np.testing.assert_array_equal(infer(plain_url, trusting(certificates)), X)


def test_client_made_from_another_has_its_trust(plain_url, certificates):
    with (
        ModelClient(plain_url, "m", tls=trusting(certificates)) as client,
        ModelClient.from_existing_client(client) as other,
    ):
        np.testing.assert_array_equal(other.infer_batch(X)["y"], X)


def test_server_of_an_unknown_authority_is_refused_and_not_waited_for(plain_url, certificates):
    with pytest.raises(PyTritonClientTlsError, match=r"TLS handshake with .*root_certificates"):
        infer(plain_url, trusting(certificates, "stranger"), init_timeout_s=100)


def test_without_roots_the_systems_authorities_are_asked(plain_url):
    with pytest.raises(PyTritonClientTlsError):
        infer(plain_url, Tls(), init_timeout_s=100)


def test_certificate_of_another_host_is_refused(plain_url, certificates):
    with pytest.raises(PyTritonClientTlsError):
        infer(plain_url.replace(LOCALHOST, "localhost"), trusting(certificates), init_timeout_s=100)


def test_client_with_a_certificate_is_known_to_the_server(mutual_url, certificates):
    np.testing.assert_array_equal(infer(mutual_url, trusting(certificates, client="client")), X)


@pytest.mark.parametrize("client", [None, "stranger"])
def test_client_that_the_server_does_not_know_is_refused(mutual_url, certificates, client):
    tls = trusting(certificates, client=client)
    wait_for_error(
        lambda timeout_s: infer(mutual_url, tls, init_timeout_s=timeout_s),
        PyTritonClientTimeoutError,
        "demands clients' certificates",
    )
