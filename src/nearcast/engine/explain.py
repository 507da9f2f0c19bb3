"""Why a subscription of a segment matches a message, or why not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import BOOLEAN, CENTIMETERS, KINDS, NEVER, PROXIMITY, Clauses, Ranked
from nearcast.compiled.scoring import (
    TOLERANCE,
    ScoringCodes,
    combined,
    message_distance_m,
    region_meets,
    share,
    space_score,
    text_score,
)
from nearcast.indexes.boolean import Linear
from nearcast.indexes.ranked import ranked_columns, ranked_messages
from nearcast.model import Explanation, WeighedWord
from nearcast.model.derived import is_scope, readable

if TYPE_CHECKING:
    from nearcast.columns import Messages, Subscriptions
    from nearcast.intake import MessageBatch
    from nearcast.segments import Scorer, Segment
    from nearcast.text import Vocabulary

__all__ = ["explain_row"]

_OTHER_SCOPE = "The message is of another scope."


def explain_row(segment: Segment, row: int, batch: MessageBatch) -> Explanation:
    """Explain whether the subscription of a row matches the only message of a batch."""
    subscription, vocabulary = segment.subscriptions.take(np.array([row])), segment.vocabulary
    rankings = subscription.rankings
    if rankings is None or rankings.kind[0] == BOOLEAN:
        found = _explain_boolean(subscription.clauses, vocabulary, batch.number(vocabulary))
    else:
        assert segment.scorer is not None
        found = _explain_ranked(subscription, vocabulary, segment.scorer, batch)
    [message_id], [subscription_id] = batch.ids.tolist(), subscription.ids.tolist()
    expires_us = int(subscription.expires_us[0])
    if expires_us < NEVER and expires_us <= int(batch.time_us[0]):
        reasons = (*found["reasons"], "The subscription has expired when the message comes.")
        found |= {"matches": False, "reasons": reasons}
    return Explanation(message_id=message_id, subscription_id=subscription_id, **found)


def _explain_boolean(clauses: Clauses, vocabulary: Vocabulary, messages: Messages) -> Any:
    """Return the fields of an explanation: those of the clause that lacks least."""
    tokens = set(messages.token.tolist())
    wanted, scope = _without_scope(clauses, vocabulary)
    lacking = [
        ([t for t in positive if t not in tokens], [t for t in negative if t in tokens])
        for positive, negative in wanted
    ]
    best = min(range(len(wanted)), key=lambda i: len(lacking[i][0]) + len(lacking[i][1]))
    missing, forbidden = lacking[best]
    shared = [token for token in wanted[best][0] if token in tokens]
    nothing, no_tokens = np.zeros(len(clauses) + 1, np.int64), np.empty(0, np.int32)
    everywhere = replace(
        clauses,
        token_start=nothing,
        token=no_tokens,
        negative_start=nothing,
        negative=no_tokens,
    )
    inside = bool(len(Linear.build(everywhere).match(messages)))
    words = {t: readable(vocabulary.token(t)) for t in (*shared, *missing, *forbidden)}
    own_scope = None if scope is None else scope in tokens
    matches = inside and not missing and not forbidden and own_scope is not False
    one_of = "" if len(wanted) == 1 else f" (the closest of {len(wanted)} clauses)"
    reasons = [
        "The message is inside the region." if inside else "The message is outside the region.",
        *_sentence(f"It has all required words{one_of}", shared, words, unless=missing),
        *_sentence(f"It lacks required words{one_of}", missing, words),
        *_sentence("It has excluded words", forbidden, words),
        *([_OTHER_SCOPE] if own_scope is False else []),
    ]
    if not wanted[best][0] and not wanted[best][1]:
        reasons.append("The subscription asks for everything in its region.")
    each = 1 / max(1, len(shared) + len(missing))
    return {
        "kind": KINDS[BOOLEAN],
        "matches": matches,
        "reasons": tuple(reasons),
        "shared": tuple(WeighedWord(words[t], 1.0, each) for t in shared),
        "missing": tuple(WeighedWord(words[t], 1.0, each) for t in missing),
        "forbidden": tuple(words[t] for t in forbidden),
        "inside": inside,
        "scope": own_scope,
    }


def _without_scope(
    clauses: Clauses, vocabulary: Vocabulary
) -> tuple[list[tuple[list[int], list[int]]], int | None]:
    """Return the conjunctions of the only row without the token of its scope, and that token."""
    wanted = clauses.conjunction_lists(0)
    scope = next((t for t in wanted[0][0] if is_scope(vocabulary.token(t))), None)
    if scope is None:
        return wanted, None
    return [([t for t in own if t != scope], negative) for own, negative in wanted], scope


def _sentence(
    begin: str, tokens: list[int], words: dict[int, str], unless: list[int] | None = None
) -> list[str]:
    if not tokens or unless:
        return []
    return [f"{begin}: {', '.join(words[token] for token in tokens)}."]


def _explain_ranked(
    subscription: Subscriptions, vocabulary: Vocabulary, scorer: Scorer, batch: MessageBatch
) -> Any:
    """Return the fields of an explanation, with every part of the score."""
    content = scorer.content(subscription, vocabulary)
    assert isinstance(content, Ranked)
    messages = batch.number(vocabulary, text_weight=scorer.text_weight(batch.words))
    columns, seen = ranked_columns(content), ranked_messages(messages, content)
    similarity, distance = content.scoring.codes
    by_distance = content.kind == KINDS[PROXIMITY]
    codes = ScoringCodes(similarity, distance, int(by_distance))
    tokens = set(messages.token.tolist())
    own = float(columns.text_weight[0])
    shared, missing, weight = [], [], 0.0
    pairs = zip(columns.token.tolist(), columns.token_weight.tolist(), strict=True)
    for token, token_weight in pairs:
        word = WeighedWord(vocabulary.token(token), token_weight, token_weight / own)
        if token in tokens:
            weight += token_weight
            shared.append(word)
        else:
            missing.append(word)
    text = float(text_score(similarity, weight, own, seen.text_weight[0]))
    space = float(space_score(codes, columns, 0, seen, 0))
    p, q = float(share(columns.text_share[0])), float(share(columns.threshold[0]))
    score = float(combined(p, text, space))
    condition, scope, forbidden = _check_condition(content, vocabulary, tokens)
    matches = score >= q - TOLERANCE and condition is not False and scope is not False
    found = {
        "kind": content.kind,
        "matches": matches,
        "shared": tuple(shared),
        "missing": tuple(missing),
        "forbidden": forbidden,
        "condition": condition,
        "scope": scope,
        "text": text,
        "space": space,
        "text_part": p * text,
        "space_part": (1.0 - p) * space,
        "score": score,
        "threshold": q,
        "margin": score - q,
        "weights_version": scorer.weights.version,
    }
    if by_distance:
        lon, lat = (float(side) for side in columns.box[0, :2])
        found["distance_m"] = float(message_distance_m(codes, lon, lat, seen, 0))
    else:
        found["inside"] = bool(region_meets(columns, 0, seen, 0))
    max_distance_m = int(columns.max_distance_cm[0]) / CENTIMETERS
    return found | {"reasons": tuple(_ranked_reasons(found, p, max_distance_m))}


def _check_condition(
    content: Ranked, vocabulary: Vocabulary, tokens: set[int]
) -> tuple[bool | None, bool | None, tuple[str, ...]]:
    """Return whether condition and scope hold (None: there is none), and excluded words."""
    condition = content.rankings.condition
    if condition is None:
        return None, None, ()
    wanted, token = _without_scope(condition, vocabulary)
    scope = None if token is None else token in tokens
    if wanted == [([], [])]:
        return None, scope, ()
    holds = any(
        tokens.issuperset(positive) and tokens.isdisjoint(negative) for positive, negative in wanted
    )
    present = sorted({t for _, negative in wanted for t in negative if t in tokens})
    return holds, scope, tuple(readable(vocabulary.token(token)) for token in present)


def _ranked_reasons(found: dict[str, Any], p: float, max_distance_m: float) -> list[str]:
    shared, missing = found["shared"], found["missing"]
    reasons = []
    if not shared and not missing:
        reasons.append("The subscription has no keywords: its words count as all found.")
    for words, verb in ((shared, "has"), (missing, "lacks")):
        if words:
            listed = ", ".join(f"{w.word} ({w.share:.0%})" for w in words)
            reasons.append(f"The message {verb} {listed}.")
    reasons.append(f"Words: {found['text']:.4f} x {p:.4g} = {found['text_part']:.4f}.")
    if "distance_m" in found:
        reach = f"of at most {max_distance_m:,.2f} m"
        reasons.append(f"The message is {found['distance_m']:,.2f} m away, {reach}.")
        place = "Distance"
    else:
        place = "Overlap"
        reasons.append(
            "The message meets the region." if found["inside"] else "The message is elsewhere."
        )
    reasons.append(f"{place}: {found['space']:.4f} x {1 - p:.4g} = {found['space_part']:.4f}.")
    reached = found["score"] >= found["threshold"] - TOLERANCE
    comparison = "reaches" if reached else "falls short of"
    margin = f"{abs(found['margin']):.4f} {'above' if found['margin'] >= 0 else 'below'}"
    reasons.append(
        f"The score {found['score']:.4f} {comparison} {found['threshold']:.4f} ({margin})."
    )
    if found["condition"] is not None:
        reasons.append(f"The condition is {'true' if found['condition'] else 'not true'}.")
    if found["scope"] is False:
        reasons.append(_OTHER_SCOPE)
    return reasons
