"""The machine that runs a benchmark, and the memory that a block of code uses."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["PeakMemory", "describe_machine", "machine_caption"]

_INTERVAL_S = 0.005


def describe_machine() -> dict[str, Any]:
    """Return the processor, cores, memory and versions of this machine.

    Examples
    --------
    >>> sorted(describe_machine())
    ['cores', 'memory_gb', 'numba', 'numpy', 'processor', 'python', 'system']
    """
    import numba
    import numpy as np

    return {
        "processor": _processor(),
        "cores": psutil.cpu_count() or 1,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def machine_caption(machine: dict[str, Any]) -> str:
    """Return a machine in one line, for the caption of a table or a figure."""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:g} GB; "
        f"Python {machine['python']}, Numba {machine['numba']}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _release_memory() -> None:
    """Return freed memory to the operating system, so that new allocations count as growth."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class PeakMemory:
    """Measures how much the memory of this process grows while a block runs.

    Examples
    --------
    >>> with PeakMemory() as memory:
    ...     data = bytearray(1000)
    >>> memory.growth_bytes >= 0
    True
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._done = threading.Event()
        self._before = self._peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def growth_bytes(self) -> int:
        """Peak memory in use, minus the memory in use at the start."""
        return max(0, self._peak - self._before)

    def __enter__(self) -> Self:
        _release_memory()
        self._before = self._peak = self._process.memory_info().rss
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._done.wait(_INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        self._peak = max(self._peak, self._process.memory_info().rss)
