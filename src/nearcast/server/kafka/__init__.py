r"""Matching on many machines: messages and changes go to Kafka, matches come back from there.

::

    log -> Sender -> topic of messages  \
    outbox -> Sender -> topic of changes -> nearcast spark stream --moves -> topic of matches
    log <- committer <- Receiver <------------------------------------------/

The server's own log stays the one order of everything, and what is acknowledged is there. A message
goes to Kafka under its event id, so a match finds it again. The matches that come back are records
of the log as well, each together with the offsets up to which the topic was read: so after a crash
none is missing, and none comes twice. Events follow from the log as they always do.
"""

from nearcast.extras import require

require("kafka", "nearcast.server.kafka")
