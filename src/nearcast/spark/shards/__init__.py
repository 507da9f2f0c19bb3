"""Shards: the planner cuts subscriptions into them, the router says where a row belongs.

Nothing here needs Spark.
"""
