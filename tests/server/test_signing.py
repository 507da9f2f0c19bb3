"""Signatures, judged by the reference implementation of Standard Webhooks."""

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from nearcast.errors import InvalidInput
from nearcast.server.delivery.signing import decode_secret, new_secret, signed_headers

KEYS = st.binary(min_size=24, max_size=64)


def _secret(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


@given(
    key=KEYS,
    event_id=st.from_regex(r"[0-9]{1,10}-[0-9]{1,19}(\.[0-9]{1,6})?", fullmatch=True),
    data=st.dictionaries(st.text(), st.text() | st.integers()),
)
def test_the_reference_verifies_ours(key: bytes, event_id: str, data: dict[str, object]) -> None:
    body = json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        body.decode()
    except UnicodeDecodeError:
        body = json.dumps(data).encode()
    headers = signed_headers([decode_secret(_secret(key))], event_id, int(time.time()), body)
    assert Webhook(_secret(key)).verify(body, headers) == data
    other = bytes([body[0] ^ 1]) + body[1:]
    with pytest.raises(WebhookVerificationError):
        Webhook(_secret(key)).verify(other, headers)


def test_every_secret_of_a_rotation_verifies_and_no_other() -> None:
    secrets = [new_secret() for _ in range(3)]
    keys = [decode_secret(secret) for secret in secrets]
    headers = signed_headers(keys[:2], "1-1", int(time.time()), b"{}")
    for secret in secrets[:2]:
        assert Webhook(secret).verify(b"{}", headers) == {}
    with pytest.raises(WebhookVerificationError):
        Webhook(secrets[2]).verify(b"{}", headers)


def test_the_example_of_the_specification() -> None:
    key = decode_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers(
        [key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_new_secrets_differ() -> None:
    assert len({new_secret() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_!!!!",
        "whsec_é",
        base64.b64encode(b"x" * 32).decode(),
        _secret(b"x" * 23),
        _secret(b"x" * 65),
    ],
)
def test_invalid_secrets_are_refused_and_not_quoted(secret: str) -> None:
    with pytest.raises(InvalidInput, match="whsec_ and the base64 of 24 to 64 bytes") as caught:
        decode_secret(secret)
    assert secret == "" or secret not in str(caught.value).replace("must be whsec_ and", "")
