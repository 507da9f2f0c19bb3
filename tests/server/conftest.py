"""What tests of the server share."""

from __future__ import annotations

from postgres import database, postgres

__all__ = ["database", "postgres"]
