"""The code of Spark's workers: plain generators over Arrow record batches.

They are functions or small frozen dataclasses, pickled by name. They need neither Spark nor Java:
any program with record batches can call them.
"""
