"""Certificates of an authority of our own, for servers and clients on this machine."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificate:
    """Where a certificate and its key are (PEM)."""

    certificate: str
    key: str


class Authority:
    """Signs certificates of 127.0.0.1. `trusted` is the file with its own certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority of a test")
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.trusted = self._write("authority", builder, self._key, None).certificate

    def sign(self, name: str, password: str | None = None) -> Certificate:
        """A certificate with a key, encrypted if there is a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = _builder(_named(name), self._name, key).add_extension(address, critical=False)
        return self._write(name, builder, key, password)

    def _write(
        self, name: str, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, password: str | None
    ) -> Certificate:
        signed, pem = builder.sign(self._key, hashes.SHA256()), serialization.Encoding.PEM
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            hidden = serialization.BestAvailableEncryption(password.encode())
        at = Certificate(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        Path(at.certificate).write_bytes(signed.public_bytes(pem))
        Path(at.key).write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, hidden))
        return at


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
    )
