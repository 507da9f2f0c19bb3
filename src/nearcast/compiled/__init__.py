"""Kernels (compiled functions over arrays) that several packages share, and how to compile them.

Kernels contain loops and nothing else: no classes, no strings, no files. They take NamedTuples of
arrays, release the GIL and never change an index while they match. `jit` has the decorators that
hold all Numba policy, `cache` keeps compiled kernels on disk.
"""
