"""Keys and tokens: how they are made, read and checked.

A key is ``nc_<id>_<secret>``. The server stores the id and the SHA-256 of the secret, which is
random, so no slow hash is needed. A token is for browsers and phones: it says for itself whom it
is for and when it ends, signed by the server, and is stored nowhere.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

import msgspec

__all__ = [
    "ROLES",
    "KeyParts",
    "NewKey",
    "TokenClaims",
    "hash_secret",
    "make_key",
    "make_token",
    "new_token_secret",
    "parse_key",
    "same_hash",
    "verify_token",
]

ROLES = ("publish", "subscribe", "admin")
"""What a key may do: send messages; keep subscriptions and read events; manage tenants and keys."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 12
_SECRET_BYTES = 32
_KEY = re.compile(r"nc_([0-9a-z]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_TOKEN = re.compile(r"nct_([A-Za-z0-9_-]{1,2048})\.([A-Za-z0-9_-]{43})", re.ASCII)
_PURPOSE = b"nearcast token 1\n"


class NewKey(NamedTuple):
    """A key at the only time that its text is known; ``hash`` is what the server keeps."""

    id: str
    text: str
    hash: bytes


class KeyParts(NamedTuple):
    """The id of a key, and the hash of its secret."""

    id: str
    hash: bytes


class TokenClaims(NamedTuple):
    """Whom a token is for, what it may do, and until when (seconds since 1970).

    ``subscriber`` is None if it is for all subscribers of the tenant.
    """

    tenant: int
    subscriber: str | None
    roles: tuple[str, ...]
    expires_s: int


def make_key() -> NewKey:
    """Return a random key.

    Examples
    --------
    >>> key = make_key()
    >>> parse_key(key.text) == KeyParts(key.id, key.hash)
    True
    """
    key_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return NewKey(key_id, f"nc_{key_id}_{secret}", hash_secret(secret))


def parse_key(text: str) -> KeyParts | None:
    """Return the parts of a key; None if the text is no key."""
    match = _KEY.fullmatch(text)
    return None if match is None else KeyParts(match[1], hash_secret(match[2]))


def hash_secret(secret: str) -> bytes:
    """Return the SHA-256 of the secret of a key."""
    return hashlib.sha256(secret.encode()).digest()


def same_hash(left: bytes, right: bytes) -> bool:
    """Whether two hashes are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(left, right)


def new_token_secret() -> bytes:
    """Return a random secret for signing tokens, which the server keeps."""
    return secrets.token_bytes(_SECRET_BYTES)


def make_token(claims: TokenClaims, secret: bytes) -> str:
    """Return a token that says what the claims say.

    Parameters
    ----------
    claims
        Whom it is for, what it may do, and until when.
    secret
        The secret of the server.

    Examples
    --------
    >>> claims = TokenClaims(0, "ann", ("subscribe",), 1_795_888_800)
    >>> verify_token(make_token(claims, b"secret"), b"secret", now_s=1_795_888_799) == claims
    True
    """
    body = _encoded(msgspec.json.encode(claims))
    return f"nct_{body}.{_signature(body, secret)}"


def verify_token(text: str, secret: bytes, *, now_s: float) -> TokenClaims | None:
    """Return what a token says; None if it is no token of this server, or has expired."""
    match = _TOKEN.fullmatch(text)
    if match is None or not hmac.compare_digest(_signature(match[1], secret), match[2]):
        return None
    try:
        claims = msgspec.json.decode(_decoded(match[1]), type=TokenClaims)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        return None
    return claims if now_s < claims.expires_s else None


def _signature(body: str, secret: bytes) -> str:
    return _encoded(hmac.digest(secret, _PURPOSE + body.encode(), "sha256"))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
