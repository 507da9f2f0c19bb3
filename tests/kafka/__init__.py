"""Streams through a real Kafka broker.

The broker and the connector are jars from a Maven repository, fetched once and kept; as that needs
the network, these tests run only when asked for, by ``make tests-kafka``, in a process of their
own.
"""
