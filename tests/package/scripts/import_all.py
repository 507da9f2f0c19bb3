"""Import all modules of the package, and write what each says: "", "extra: plots", or an error."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import nearcast


def answer(name: str) -> str:
    """Import a module, and return the extra that it lacks, or the error."""
    try:
        importlib.import_module(name)
    except nearcast.errors.MissingExtra as error:
        return f"extra: {error.extra}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Go through all modules. Those inside of a package that cannot be imported are not seen."""
    found = pkgutil.walk_packages(nearcast.__path__, "nearcast.", onerror=lambda _: None)
    names = [module.name for module in found if not module.name.endswith("__main__")]
    json.dump({name: answer(name) for name in names}, sys.stdout)


if __name__ == "__main__":
    main()
