"""Certificates for servers and clients on this machine."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificates:
    """PEM files of an authority, and of a key with a certificate that the authority signed."""

    root: Path
    key: Path
    chain: Path

    @classmethod
    def in_folder(cls, folder: Path, name: str = "127.0.0.1") -> Certificates:
        """Make new ones, for a name or an address."""
        files = cls(folder / "root.pem", folder / "key.pem", folder / "chain.pem")
        authority = trustme.CA()
        certificate = authority.issue_cert(name)
        authority.cert_pem.write_to_path(str(files.root))
        certificate.private_key_pem.write_to_path(str(files.key))
        for pem in certificate.cert_chain_pems:
            pem.write_to_path(str(files.chain), append=True)
        return files

    def of_server(self, client_root: Path | None = None) -> ssl.SSLContext:
        """For a server with this certificate.

        Args:
            client_root: Authority that clients' certificates must have; None asks for none.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.chain, self.key)
        if client_root is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_root)
        return context
