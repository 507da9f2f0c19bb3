"""Numba functions over arrays: arrays in, arrays filled, numbers out.

Kernels hold loops and nothing else: no classes, no strings, no files. They take NamedTuples of
arrays, release the GIL and never change an index. `compile` has the one decorator that holds
all Numba policy.
"""
