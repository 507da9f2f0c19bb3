"""The artifact: an index in a folder of any file system, with versions, checksums and locks.

`folders` reads and writes any file system. `versions` has the versions, which consist of
`segments`; `parts` are the intermediate files of a build. `clock` gives every time one version.
`leases` keep the versions that jobs read. `working` manages temporary folders, with `locks`.
Nothing here needs Spark.
"""
