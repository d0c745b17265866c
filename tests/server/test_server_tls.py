"""A server whose only endpoint is encrypted gRPC: we reach it to load models, whatever its certificate is for."""

import os

import numpy as np
import pytest

from pytriton.client import ModelClient, Tls
from pytriton.client.exceptions import PyTritonClientTlsError
from pytriton.exceptions import PyTritonValidationError
from pytriton.triton import Triton
from tests.server.conftest import local_config
from tests.server.own_server import address, serving
from tests.server.processes import descendants
from tests.server.tls import Certificates

pytestmark = pytest.mark.either_proxy

X = np.arange(3, dtype=np.float32)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return Certificates.in_folder(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """Of a server that is known under a public name."""
    return Certificates.in_folder(tmp_path_factory.mktemp("public"), "models.example.org")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return Certificates.in_folder(tmp_path_factory.mktemp("theirs"))


def encrypted(certificates, **options):
    """A configuration without any endpoint but encrypted gRPC."""
    files = {"grpc_server_cert": certificates.chain, "grpc_server_key": certificates.key}
    return local_config(allow_http=False, allow_metrics=False, **files, **options)


def test_models_are_loaded_called_and_unloaded_over_tls_alone(ours):
    with encrypted(ours, grpc_use_ssl=True) as config, serving(config) as triton:
        url, token = address(config, "grpc"), triton.get_access_token()
        with ModelClient(url, "m", tls=Tls(root_certificates=ours.root), access_token=token) as client:
            assert np.array_equal(client.infer_sample(X)["y"], X * 2)
            client.unload_model()
            client.load_model()
            assert np.array_equal(client.infer_sample(X)["y"], X * 2)


def test_the_certificate_may_be_for_another_name_than_the_address(public):
    with encrypted(public, grpc_use_ssl=True) as config, serving(config) as triton:
        assert triton.is_connected()
        with (
            ModelClient(address(config, "grpc"), "m", tls=Tls(root_certificates=public.root)) as stranger,
            pytest.raises(PyTritonClientTlsError),
        ):
            stranger.infer_sample(X)


def test_a_server_that_demands_certificates_accepts_its_own_and_those_of_its_authority(ours):
    with encrypted(ours, grpc_use_ssl_mutual=True, grpc_root_cert=ours.root) as config, serving(config):
        known = Tls(root_certificates=ours.root, private_key=ours.key, certificate_chain=ours.chain)
        with ModelClient(address(config, "grpc"), "m", tls=known) as client:
            assert np.array_equal(client.infer_sample(X)["y"], X * 2)


def test_a_server_that_would_not_accept_its_own_certificate_is_not_started(ours, theirs):
    with encrypted(ours, grpc_use_ssl_mutual=True, grpc_root_cert=theirs.root) as config:
        triton = Triton(config=config)
        before = descendants(os.getpid())
        with pytest.raises(PyTritonValidationError, match="Leave HTTP on"):
            triton.run()
        assert descendants(os.getpid()) == before
        triton.stop()
