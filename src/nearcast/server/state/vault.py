"""Secrets that have to be read back, encrypted with a key that lies outside of the folder.

The secret that signs tokens, the secrets of webhooks and their headers are written as
``sealed:1:<base64>``: 12 random bytes and the output of AES-256-GCM. Without a key they are written
as they are. What was written before a key was given stays readable; `State` seals it when it opens.

Keys of the API are not here: they are hashed, see `nearcast.server.state.keys`.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import secrets
import stat
from typing import TYPE_CHECKING, Any

import msgspec

from nearcast.errors import InvalidInput, StorageError
from nearcast.server.log.records import Definition, SinkDefinition

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KEY_VARIABLE", "Vault", "new_key_file", "read_key"]

KEY_VARIABLE = "NEARCAST_SECRETS_KEY_FILE"
"""The environment variable that names the file of the key."""

_log = logging.getLogger("nearcast.server")
_PREFIX = "sealed:1:"
_PURPOSE = b"nearcast secret 1"
_KEY_BYTES, _NONCE_BYTES = 32, 12
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Definition).decode


class Vault:
    """Seals secrets with a key, and opens them; without a key it leaves them as they are.

    Parameters
    ----------
    key
        32 bytes; None if none was given.

    Raises
    ------
    InvalidInput
        If the key has another length.

    Examples
    --------
    >>> vault = Vault(bytes(32))
    >>> sealed = vault.seal("whsec_c2VjcmV0")
    >>> "c2VjcmV0" in sealed, vault.open(sealed)
    (False, 'whsec_c2VjcmV0')
    >>> Vault().seal("whsec_c2VjcmV0")
    'whsec_c2VjcmV0'
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._cipher: Any = None
        if key is not None:
            if len(key) != _KEY_BYTES:
                problem = f"must have {_KEY_BYTES} bytes; see nearcast keys new-secrets-key"
                raise InvalidInput("the key of secrets", len(key), problem)
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(key)

    @property
    def has_key(self) -> bool:
        """Whether there is a key."""
        return self._cipher is not None

    def seal(self, text: str) -> str:
        """Return a secret as it is stored; one that is sealed already stays so."""
        if self._cipher is None or self._opened(text) is not None:
            return text
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, text.encode(), _PURPOSE)
        return _PREFIX + base64.b64encode(sealed).decode()

    def open(self, text: str) -> str:
        """Return a secret that was stored.

        Raises
        ------
        StorageError
            If it was sealed, and there is no key, or another one.
        """
        if not text.startswith(_PREFIX):
            return text
        if self._cipher is None:
            raise StorageError(
                "the secrets of this server are encrypted, and no key was given; name the file of "
                f"the key with --secrets-key-file or {KEY_VARIABLE}"
            )
        found = self._opened(text)
        if found is None:
            raise StorageError(
                "the secrets of this server were encrypted with another key, or are damaged; name "
                f"the right file with --secrets-key-file or {KEY_VARIABLE}"
            )
        return found

    def seal_bytes(self, value: bytes) -> bytes:
        """Return a secret of bytes as it is stored."""
        return self.seal(value.hex()).encode() if self.has_key else value

    def open_bytes(self, value: bytes) -> bytes:
        """Return a secret of bytes that was stored."""
        if not value.startswith(_PREFIX.encode()):
            return value
        return bytes.fromhex(self.open(value.decode()))

    def seal_sink(self, sink: SinkDefinition) -> SinkDefinition:
        """Return a sink as the log has it."""
        return self._changed(sink, self.seal)

    def seal_definition(self, packed: bytes) -> bytes:
        """Return a stored definition with the secrets of its sink sealed."""
        return self._repacked(packed, self.seal)

    def open_definition(self, packed: bytes) -> bytes:
        """Return a stored definition with the secrets of its sink as they were given."""
        return self._repacked(packed, self.open)

    def _repacked(self, packed: bytes, change: Any) -> bytes:
        definition = _decode(packed)
        if definition.sink is None:
            return packed
        sink = self._changed(definition.sink, change)
        if sink == definition.sink:
            return packed
        return _encode(msgspec.structs.replace(definition, sink=sink))

    @staticmethod
    def _changed(sink: SinkDefinition, change: Any) -> SinkDefinition:
        headers = {name: change(value) for name, value in sink.headers.items()}
        return SinkDefinition(sink.url, tuple(map(change, sink.secrets)), headers)

    def _opened(self, text: str) -> str | None:
        """Return what was sealed with this key; None if it was not."""
        from cryptography.exceptions import InvalidTag

        if not text.startswith(_PREFIX):
            return None
        try:
            sealed = base64.b64decode(text[len(_PREFIX) :], validate=True)
            nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            found: bytes = self._cipher.decrypt(nonce, rest, _PURPOSE)
        except (InvalidTag, ValueError, binascii.Error):
            return None
        return found.decode()


def read_key(path: Path, folder: Path) -> bytes:
    """Return the key in a file: 32 bytes as base64, in one line.

    Parameters
    ----------
    path
        The file, such as ``nearcast keys new-secrets-key`` makes.
    folder
        The folder of the server, which must not have the file: a copy of it would have both.

    Raises
    ------
    InvalidInput
        If it cannot be read, is no key or is in the folder.
    """
    field = "--secrets-key-file"
    if folder.resolve() in path.resolve().parents:
        problem = f"must be outside of {folder}: whoever gets the folder would have the key"
        raise InvalidInput(field, str(path), problem)
    try:
        text = path.read_text(encoding="ascii").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(field, str(path), f"cannot be read ({error})") from error
    try:
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        problem = "must have 32 random bytes as base64; nearcast keys new-secrets-key makes one"
        raise InvalidInput(field, str(path), problem)
    if os.name != "nt" and mode & stat.S_IRWXO:
        _log.warning("%s: other users can read the key of the secrets; chmod 600 it", path)
    return key


def new_key_file(path: Path) -> None:
    """Write a new key to a file that only this user can read; it must not exist yet."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidInput("FILE", str(path), f"cannot be made ({error.strerror})") from error
    with os.fdopen(file, "w") as out:
        out.write(base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode() + "\n")
