"""JSON web tokens (ES256) that a broker of ours trusts."""

import base64
import json
import time
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_BYTES = 32


class TokenIssuer:
    """Signs tokens; `keys` is the file with the key that proves them."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "EC",
            "crv": "P-256",
            "use": "sig",
            "alg": "ES256",
            "kid": "test",
            "x": _text(numbers.x.to_bytes(_BYTES, "big")),
            "y": _text(numbers.y.to_bytes(_BYTES, "big")),
        }
        self.keys = folder / "keys.json"
        self.keys.write_text(json.dumps({"keys": [key]}))

    def token(self, user: str, seconds: int = 3600) -> str:
        """A token of a user that ends after so many seconds."""
        now = int(time.time())
        claims = {"sub": user, "iat": now - 1, "exp": now + seconds, "scope": "kafka"}
        parts = ({"alg": "ES256", "typ": "JWT", "kid": "test"}, claims)
        signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_text(r.to_bytes(_BYTES, 'big') + s.to_bytes(_BYTES, 'big'))}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
