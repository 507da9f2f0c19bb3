"""Matching: from the log to postings, and the events that subscribers read.

`postings` has the words: a posting, an event, a position. `runs` sorts postings by channel.
`events` keeps them: the newest in memory, the others in `segments`, files that the log can
rebuild byte for byte.
"""
