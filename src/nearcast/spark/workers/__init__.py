"""What runs in Spark's workers: plain generators over Arrow record batches.

They are small frozen dataclasses or functions, pickled by name, and need neither Spark nor Java:
anything that has record batches can call them.
"""
