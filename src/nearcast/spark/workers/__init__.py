"""The code of Spark's workers: plain generators over Arrow record batches.

They are functions or small frozen dataclasses, pickled by name. They need neither Spark nor Java:
any program with record batches can call them.
"""

from nearcast.compiled.first_calls import compile_at_once

# A worker lives for thousands of batches, and must not wait for another process.
compile_at_once()
