"""The artifact: an index in a folder of any file system, with versions, checksums and locks.

`folders` reads and writes any file system, `versions` says what a version is made of and brings it
into force, `segments` and `parts` are what it consists of, `working` and `locks` tell who is at
work. Nothing here needs Spark.
"""
