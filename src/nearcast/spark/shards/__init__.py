"""Shards: the planner divides subscriptions into shards, the router finds the shards of a row.

`router` is the searchable tree, `tree` its arrays and kernels. `planner` makes a router from
samples with `build_tree`. `shard_dedup` decides which shard reports a match that several find.
Nothing here needs Spark.
"""
