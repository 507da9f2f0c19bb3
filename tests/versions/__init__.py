"""The versions that pyproject.toml promises: the lowest ones, and the newest there are."""
