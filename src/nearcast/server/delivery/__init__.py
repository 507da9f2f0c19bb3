"""Delivery of events to subscribers: webhooks, and the pace at which events may go.

`webhooks` sends events to sinks, `signing` signs them, `addresses` keeps the server from connecting
to private networks, and `pacing` holds events back for caps, digests and quiet hours.
"""
