"""Generated data sets: subscriptions and messages like those of the papers, drawn from a seed.

Subscribers that move on roads are in `nearcast.datasets.roads`.

>>> workload = Workload("tweets", seed=1)
>>> table = subscription_table(workload, workload.subscriptions(3))
>>> table.column_names
['id', 'keywords', 'west', 'south', 'east', 'north']
"""

from nearcast.datasets.tables import message_table, subscription_table
from nearcast.datasets.workloads import DATASETS, Workload

__all__ = ["DATASETS", "Workload", "message_table", "subscription_table"]
