"""Matching: from the log to postings, and the events that subscribers read.

`matcher` turns records into postings: `changes`, `administration` and `dwell` are parts of that,
`registry` is what it knows of every subscription. `postings` has the words: a posting, an event, a
position. `runs` sorts postings by channel. `events` keeps them: the newest in memory, the others in
`segments`, files that the log can rebuild byte for byte.

`checkpoint` saves all that, `recovery` opens it and replays the log, `pipeline` runs it,
`retention` removes what is old, and `lost` counts the events that were removed.
"""
