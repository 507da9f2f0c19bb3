"""Keys and tokens: what is accepted, and that everything else is the same refusal."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.server.http.auth import Authenticator, Principal
from nearcast.server.http.problems import Problem
from nearcast.server.state.keys import (
    TokenClaims,
    make_key,
    make_token,
    new_token_secret,
    parse_key,
    same_hash,
    verify_token,
)

SECRET = b"s" * 32
NOW_S = 1_795_888_800
CLAIMS = TokenClaims(3, "ann", ("subscribe",), NOW_S + 60)
KEY = make_key()
OWNER = Principal(3, KEY.id, frozenset({"publish"}))


def test_keys_are_random_and_their_text_is_not_kept() -> None:
    keys = [make_key() for _ in range(100)]
    assert len({key.id for key in keys}) == len({key.hash for key in keys}) == 100
    for key in keys:
        parts = parse_key(key.text)
        assert parts is not None
        assert (parts.id, same_hash(parts.hash, key.hash)) == (key.id, True)
        assert key.hash.hex() not in key.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nc_",
        KEY.text[:-1],
        KEY.text + "a",
        KEY.text.upper(),
        " " + KEY.text,
        KEY.text + "\n",
        "nct_" + KEY.text,
        KEY.text.replace("nc_", "nc-"),
    ],
    ids=range(9),
)
def test_texts_that_are_no_keys(text: str) -> None:
    assert parse_key(text) is None


def test_tokens_end_at_their_time() -> None:
    token = make_token(CLAIMS, SECRET)
    assert verify_token(token, SECRET, now_s=NOW_S + 59.9) == CLAIMS
    assert verify_token(token, SECRET, now_s=NOW_S + 60) is None
    assert verify_token(token, new_token_secret(), now_s=NOW_S) is None


@given(st.integers(0, 10_000), st.integers(1, 127))
def test_a_changed_token_is_refused(place: int, change: int) -> None:
    token = make_token(CLAIMS, SECRET)
    place %= len(token)
    changed = token[:place] + chr(ord(token[place]) ^ change) + token[place + 1 :]
    assert verify_token(changed, SECRET, now_s=NOW_S) is None


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    assert verify_token(text, SECRET, now_s=NOW_S) is None
    assert verify_token("nct_" + text, SECRET, now_s=NOW_S) is None
    assert parse_key(text) is None


def test_a_signature_does_not_move_to_other_claims() -> None:
    body, signature = make_token(CLAIMS, SECRET).removeprefix("nct_").split(".")
    other = base64.urlsafe_b64encode(b'[0,"bob",["admin"],9999999999]').decode().rstrip("=")
    assert body != other
    assert verify_token(f"nct_{other}.{signature}", SECRET, now_s=NOW_S) is None


class Known:
    """The keys of a server, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.keys = {KEY.id: (KEY.hash, OWNER)}
        self.now = 0.0
        self.auth = Authenticator(
            self.find, SECRET, clock=lambda: NOW_S, monotonic=lambda: self.now
        )

    def find(self, key_id: str, digest: bytes) -> Principal | None:
        self.asked += 1
        known, owner = self.keys.get(key_id, (b"", OWNER))
        return owner if same_hash(known, digest) else None


def scope(
    *authorization: str, method: str = "GET", path: str = "/v1/events", query: str = ""
) -> dict[str, Any]:
    headers = [(b"authorization", value.encode()) for value in authorization]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
    }


def test_keys_and_tokens_are_accepted() -> None:
    known = Known()
    given_scope = scope(f"Bearer {KEY.text}", path="/v1/messages", method="POST")
    assert known.auth.principal(given_scope) == OWNER
    assert given_scope["state"]["tenant"] == 3
    assert known.auth.principal(scope(f"bearer  {KEY.text}")) == OWNER
    token = make_token(CLAIMS, SECRET)
    meant = Principal(3, "", frozenset({"subscribe"}), "ann", CLAIMS.expires_s)
    assert known.auth.principal(scope(f"Bearer {token}")) == meant
    assert known.auth.principal(scope(query=f"cursor=now&access_token={token}")) == meant
    socket = scope(query=f"access_token={token}") | {"type": "websocket"}
    del socket["method"]
    assert known.auth.principal(socket) == meant


def test_all_refusals_are_the_same() -> None:
    known = Known()
    expired = make_token(CLAIMS._replace(expires_s=NOW_S), SECRET)
    token = make_token(CLAIMS, SECRET)
    refused = [
        scope(),
        scope(""),
        scope("Bearer"),
        scope("Basic YTpi"),
        scope(KEY.text),
        scope(f"Bearer {KEY.text}", f"Bearer {KEY.text}"),
        scope(f"Bearer {make_key().text}"),
        scope(f"Bearer nc_{KEY.id}_{make_key().text[-43:]}"),
        scope("Bearer nonsense"),
        scope(f"Bearer {expired}"),
        scope(f"Bearer {token}x"),
        scope(query=f"access_token={token}", path="/v1/messages"),
        scope(query=f"access_token={token}", method="POST"),
        scope(query=f"access_token={token}&access_token={token}"),
        scope("Bearer x", query=f"access_token={token}"),
    ]
    answers = set()
    for one in refused:
        with pytest.raises(Problem) as caught:
            known.auth.principal(one)
        answers.add((caught.value.response().body, str(caught.value.headers)))
    assert len(answers) == 1
    assert caught.value.status == 401


def test_valid_keys_are_remembered_for_a_moment() -> None:
    known = Known()
    request = scope(f"Bearer {KEY.text}")
    for _ in range(3):
        known.auth.principal(request)
    assert known.asked == 1
    known.now = 6.0
    known.auth.principal(request)
    assert known.asked == 2
    del known.keys[KEY.id]
    assert known.auth.principal(request) == OWNER
    known.auth.forget()
    with pytest.raises(Problem):
        known.auth.principal(request)


def test_roles_and_subscribers() -> None:
    OWNER.require("publish")
    OWNER.require_subscriber("anyone")
    with pytest.raises(Problem) as caught:
        OWNER.require("admin")
    assert caught.value.code == "PERMISSION_DENIED"
    with pytest.raises(Problem) as caught:
        OWNER._replace(subscriber="ann").require_subscriber("bob")
    assert caught.value.status == 403
