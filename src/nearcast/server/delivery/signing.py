"""Signatures of webhooks, as Standard Webhooks 1.0.0 defines them (symmetric, ``v1``).

The signed content is ``<webhook-id>.<webhook-timestamp>.<body>``. While a secret is being rotated a
sink has two or more; a request then carries one signature of each, and the receiver accepts any.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from typing import TYPE_CHECKING

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["decode_secret", "new_secret", "signed_headers"]

_PREFIX = "whsec_"
_MIN_BYTES, _MAX_BYTES = 24, 64  # as Standard Webhooks recommends


def new_secret() -> str:
    """Return a random secret of 32 bytes, in the form ``whsec_<base64>``."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def decode_secret(secret: str) -> bytes:
    """Return the key of a secret.

    Parameters
    ----------
    secret
        ``whsec_`` and the base64 of 24 to 64 bytes.

    Raises
    ------
    InvalidInput
        When the secret has another form. The message does not quote it.

    Examples
    --------
    >>> decode_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").hex()[:8]
    '31f290f6'
    """
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text, validate=True) if text != secret else b""
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        key = b""
    if not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        problem = f"must be {_PREFIX} and the base64 of {_MIN_BYTES} to {_MAX_BYTES} bytes"
        raise InvalidInput("secret", "a text of another form", problem)
    return key


def signed_headers(
    keys: Iterable[bytes], event_id: str, timestamp_s: int, body: bytes
) -> dict[str, str]:
    """Return the three headers of a signed webhook; without keys there is no signature.

    Parameters
    ----------
    keys
        The decoded secrets; the newest first.
    event_id
        The id of the event, the same for every attempt. The period of ``<epoch>-<seq>.<k>`` is
        harmless: read as a timestamp, ``k`` is too old for any receiver.
    timestamp_s
        The time of this attempt, in seconds since 1970.
    body
        The exact bytes that are sent.

    Examples
    --------
    >>> key = decode_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    >>> headers = signed_headers([key], "1-7", 1614265330, b'{"test": 2432232314}')
    >>> sorted(headers)
    ['webhook-id', 'webhook-signature', 'webhook-timestamp']
    """
    headers = {"webhook-id": event_id, "webhook-timestamp": str(timestamp_s)}
    content = f"{event_id}.{timestamp_s}.".encode() + body
    digests = [base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys]
    if digests:
        headers["webhook-signature"] = " ".join(f"v1,{digest}" for digest in digests)
    return headers
