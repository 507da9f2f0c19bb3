"""A tokenizer of one's own, which workers import by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def codes(text: str) -> list[str]:
    """Split at slashes, and keep everything else."""
    return text.split("/")


class Codes:
    """The same for many texts at once."""

    def __call__(self, text: str) -> list[str]:
        """Split a text."""
        return codes(text)

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """Split many texts."""
        return [codes(text) for text in texts]


many_codes = Codes()
