"""What happens over time: living messages, subscriptions that move, updates, the outbox.

`Live` has the present and everything that lives; `Mover` moves and replaces subscriptions.
"""
