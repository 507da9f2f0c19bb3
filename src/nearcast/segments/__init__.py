"""One piece of subscriptions with its index and its deaths."""
