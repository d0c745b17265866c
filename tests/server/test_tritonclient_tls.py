"""Encrypted connections of tritonclient: to the server's gRPC endpoint, and to HTTPS in front of its HTTP endpoint."""

import ssl

import gevent.ssl
import grpc
import numpy as np
import pytest

from tests.server.arrays import filled
from tests.server.conftest import LOCALHOST, local_config
from tests.server.relay import relay
from tests.server.tls import Certificates
from tests.server.tritonclients import Api, only_grpc

pytestmark = [
    pytest.mark.either_proxy,
    pytest.mark.filterwarnings("ignore:ssl.:DeprecationWarning"),  # geventhttpclient below 2.1
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Of the server, of a client, and of somebody whom neither trusts."""
    return {name: Certificates.in_folder(tmp_path_factory.mktemp(name)) for name in ("server", "client", "stranger")}


@pytest.fixture(scope="module", params=["server alone", "mutual"])
def mutual(request):
    return request.param == "mutual"


@pytest.fixture(scope="module")
def triton_config(certificates, mutual):
    options = {"grpc_server_cert": certificates["server"].chain, "grpc_server_key": certificates["server"].key}
    if mutual:
        options.update(grpc_use_ssl_mutual=True, grpc_root_cert=certificates["client"].root)
    else:
        options.update(grpc_use_ssl=True)
    with local_config(**options) as config:
        yield config


@pytest.fixture(scope="module")
def model(bind):
    return bind(lambda requests: [{"y": request["x"]} for request in requests])


@pytest.fixture(scope="module")
def https(triton, triton_config, certificates, mutual):
    """Address of HTTPS in front of the server."""
    context = certificates["server"].of_server(certificates["client"].root if mutual else None)
    with relay(triton_config.http_port, context) as passed:
        yield f"{LOCALHOST}:{passed.port}"


def files(certificates, root="server", own=None):
    """Arguments of the gRPC clients."""
    arguments = {"ssl": True, "root_certificates": str(certificates[root].root)}
    if own:
        arguments["private_key"] = str(certificates[own].key)
        arguments["certificate_chain"] = str(certificates[own].chain)
    return arguments


def context(certificates, make=ssl.create_default_context, root="server", own=None):
    """For the HTTP clients."""
    made = make(cafile=str(certificates[root].root))
    if own:
        made.load_cert_chain(str(certificates[own].chain), str(certificates[own].key))
    return made


def https_options(kind, certificates, **options):
    if kind == "http.aio":
        return {"ssl": True, "ssl_context": context(certificates, **options)}
    made = lambda: context(certificates, gevent.ssl.create_default_context, **options)  # noqa: E731
    return {"ssl": True, "ssl_context_factory": made}


def assert_serves(client, model):
    assert client.call("is_server_live") is True
    assert np.array_equal(client.infer(model, {"x": filled(3)})["y"], filled(3))


def assert_unavailable(client):
    with client.refuses("UNAVAILABLE"):
        client.call("is_server_live", client_timeout=20)


@only_grpc
def test_grpc_serves_those_who_trust_it_and_whom_it_trusts(api, certificates, mutual, model):
    with api.other(**files(certificates, own="client" if mutual else None)) as client:
        assert_serves(client, model)


@only_grpc
def test_grpc_takes_credentials_instead_of_files(api, certificates, mutual, model):
    own = certificates["client"]
    creds = grpc.ssl_channel_credentials(
        certificates["server"].root.read_bytes(),
        *((own.key.read_bytes(), own.chain.read_bytes()) if mutual else ()),
    )
    with api.other(creds=creds, ssl=True, root_certificates="/unused") as client:
        assert_serves(client, model)


@only_grpc
def test_grpc_clients_do_not_talk_to_a_server_that_they_do_not_trust(api, certificates):
    with api.other(**files(certificates, root="stranger", own="client")) as client:
        assert_unavailable(client)


@only_grpc
@pytest.mark.parametrize("own", [None, "stranger"])
def test_grpc_refuses_clients_that_a_mutual_server_does_not_trust(api, certificates, mutual, model, own):
    with api.other(**files(certificates, own=own)) as client:
        if mutual:
            assert_unavailable(client)
        else:
            assert_serves(client, model)


@only_grpc
def test_grpc_refuses_clients_without_encryption(api):
    assert_unavailable(api)


@pytest.mark.parametrize("kind", ["http", "http.aio"])
def test_https_serves_those_who_trust_it_and_whom_it_trusts(certificates, https, mutual, model, kind):
    own = "client" if mutual else None
    with Api(kind, https, **https_options(kind, certificates, own=own)) as client:
        assert_serves(client, model)


@pytest.mark.parametrize("kind", ["http", "http.aio"])
def test_https_clients_do_not_talk_to_a_server_that_they_do_not_trust(certificates, https, kind):
    options = https_options(kind, certificates, root="stranger", own="client")
    with Api(kind, https, **options) as client, pytest.raises(Exception, match=r"(?i)certificate.verify.failed"):
        client.call("is_server_live")


@pytest.mark.parametrize("kind", ["http", "http.aio"])
def test_https_clients_without_a_root_trust_no_private_authority(https, kind):
    with Api(kind, https, ssl=True) as client, pytest.raises(Exception, match=r"(?i)certificate.verify.failed"):
        client.call("is_server_live")


def test_https_options_can_be_given_one_by_one(certificates, https, model):
    own = certificates["client"]
    options = {"ca_certs": str(certificates["server"].root), "certfile": str(own.chain), "keyfile": str(own.key)}
    with Api("http", https, ssl=True, ssl_options=options) as client:
        assert_serves(client, model)


@pytest.mark.parametrize("insecure", [True, False])
def test_insecure_https_does_not_compare_the_name(certificates, https, model, insecure):
    own = certificates["client"]
    options = {"ca_certs": str(certificates["server"].root), "certfile": str(own.chain), "keyfile": str(own.key)}
    address = https.replace(LOCALHOST, "localhost")  # the certificate has the number alone
    with Api("http", address, insecure=insecure, ssl=True, ssl_options=options) as client:
        if insecure:
            assert_serves(client, model)
        else:
            with pytest.raises(Exception, match=r"(?i)hostname|match"):
                client.call("is_server_live")
