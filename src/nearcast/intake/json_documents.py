"""JSON documents with many records: an array of objects, or a GeoJSON FeatureCollection.

The document is read in a stream, one record at a time, so that it may be larger than memory. A
record that is not JSON is skipped to its end, found by counting brackets outside of strings.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any

from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake.json_records import Record, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nearcast.intake.lines import LineSource

__all__ = ["document_records", "is_document"]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'[\[\]{},]|"[^"\\]*(?:\\.[^"\\]*)*("|\\?\Z)', re.DOTALL)
_FEATURE = re.compile(r'\{\s*"type"\s*:\s*"Feature"\s*[,}]')
_NEXT_FEATURE = re.compile(r",\s*(?=" + _FEATURE.pattern + ")")
_NEXT_OBJECT = re.compile(r',\s*(?=\{\s*")')
_NOT_JSON = object()
_MAX_RECORD_CHARS = 1 << 26
_CHUNK_BYTES = 1 << 22


def is_document(beginning: bytes) -> bool:
    r"""Whether a file that begins so is one document with many records.

    Examples
    --------
    >>> is_document(b'{"type": "FeatureCollection",\n "features": ['), is_document(b'[{"id": 1}]')
    (True, True)
    >>> is_document(b'{"id": 1, "features": "none"}\n{"id": 2}')
    False
    """
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(beginning)
    at = _skip_space(text, 0)
    if text[at : at + 1] == "[":
        return True
    return _begin_of_features(text, at) is not None


def document_records(source: LineSource) -> Iterator[Record]:
    """Yield the records of a document, numbered from 1.

    Raises
    ------
    UnsupportedFile
        If there are no features in a FeatureCollection.
    """
    text = _Text(source)
    text.at = text.first_record()
    number = 0
    while text.skip_space() and text.next() != "]":
        number += 1
        yield text.record(number)
        if text.skip_space() and text.next() == ",":
            text.at += 1


class _Text:
    """The text of a document, of which the part from `at` on is kept."""

    def __init__(self, source: LineSource) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = ""
        self._next_record = _NEXT_OBJECT
        self.at = 0

    def next(self) -> str:
        """Return the next character; empty at the end."""
        return self._text[self.at : self.at + 1]

    def more(self) -> bool:
        """Read on; False at the end of the file."""
        content = self._source.read_bytes(_CHUNK_BYTES)
        self._text = self._text[self.at :] + self._decoder.decode(content, final=not content)
        self.at = 0
        return bool(content)

    def skip_space(self) -> bool:
        """Go on to something else than spaces; False at the end of the file."""
        while True:
            self.at = _skip_space(self._text, self.at)
            if self.at < len(self._text):
                return True
            if not self.more():
                return False

    def first_record(self) -> int:
        """Return where the first record begins."""
        self.skip_space()
        if self.next() == "[":
            return self.at + 1
        self._next_record = _NEXT_FEATURE
        while True:
            begin = _begin_of_features(self._text, self.at)
            if begin:
                return begin
            if len(self._text) > _MAX_RECORD_CHARS or not self.more():
                raise UnsupportedFile("is a GeoJSON FeatureCollection without features")

    def record(self, number: int) -> Record:
        """Return the next record; one that is not JSON ends where the next one seems to begin."""
        while True:
            value, end = _decoded(self._text, self.at)
            after = _skip_space(self._text, end)
            if value is not _NOT_JSON and self._text[after : after + 1] in {",", "]"}:
                break
            if value is _NOT_JSON or after < len(self._text):
                found = _end_of_record(self._text, self.at, self._next_record)
                if found is not None:
                    end = found
                    break
            if len(self._text) - self.at > _MAX_RECORD_CHARS or not self.more():
                end = len(self._text)
                break
        end = max(end, self.at + 1)
        text = self._text[self.at : end]
        self.at = end
        return Record(number, _shown(text), _checked(text, value, self._source.invalid))


def _checked(text: str, value: Any, invalid: str) -> dict[str, Any] | InvalidInput:
    if not text.isascii() or "\\u" in text or not isinstance(value, dict):
        try:
            return parsed(text.encode(errors="surrogateescape"), invalid)
        except UnicodeEncodeError:
            return InvalidInput("", text, invalid)
    return value


def _shown(text: str) -> str:
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _decoded(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins here, and where it ends; `_NOT_JSON` if it is none, or cut."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return _NOT_JSON, at


def _end_of_record(text: str, at: int, next_record: re.Pattern[str]) -> int | None:
    """Return the end of a record that may be broken; None if it is not in the text.

    It ends with its last bracket. If a bracket or a quote is missing, it ends before what looks
    like the beginning of the next record.
    """
    end, whole = _end_of_brackets(text, at)
    if next_record is _NEXT_OBJECT and whole:
        return end
    found = next_record.search(text, at + 1, end if whole else len(text))
    if found is not None:
        return found.start()
    return end if whole else None


def _end_of_brackets(text: str, at: int) -> tuple[int, bool]:
    """Return the end of what begins here by its brackets, and whether they match."""
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(text, at):
        first = token[0][0]
        if first == '"':
            if token[1] != '"':
                return token.start(), False
        elif first in "[{":
            open_brackets.append("]" if first == "[" else "}")
        elif first == ",":
            if not open_brackets:
                return token.start(), True
        elif not open_brackets:
            return token.start(), first == "]"
        elif open_brackets.pop() != first:
            return token.start(), False
        elif not open_brackets:
            return token.end(), True
    return len(text), False


def _begin_of_features(text: str, at: int) -> int | None:
    """Return where the features of a collection begin: 0 if further on, None if it is none."""
    if text[at : at + 1] != "{":
        return None
    collection = False
    at += 1
    while True:
        key, at = _decoded(text, _skip_space(text, at))
        at = _skip_space(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            return 0 if collection else None
        at = _skip_space(text, at + 1)
        if key == "features" and text[at : at + 1] == "[":
            if collection or _FEATURE.match(text, _skip_space(text, at + 1)):
                return at + 1
        value, at = _decoded(text, at)
        collection |= key == "type" and value == "FeatureCollection"
        at = _skip_space(text, at)
        if value is _NOT_JSON or text[at : at + 1] != ",":
            return 0 if collection else None
        at += 1


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
