"""Which addresses the server may send webhooks to.

Anyone who may create a sink makes the server send requests. So that nobody reaches the network
behind the server (server-side request forgery), only public addresses are allowed, and those of
networks that the operator allows. The check happens where a socket is made, with the address that
the socket connects to: a name that resolves differently the second time (DNS rebinding), numeric
forms of addresses and addresses in URLs all pass through it.

Special addresses are those of the IANA registries of special-purpose addresses (RFC 6890).
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Network, IPv6Network

    from aiohttp.abc import AbstractResolver
    from aiohttp.connector import AddrInfoType

    Network = IPv4Network | IPv6Network
    Address = IPv4Address | IPv6Address

__all__ = ["AddressRefused", "SinkNetworks", "check_sink_url", "system_resolver"]

MAX_URL = 2_048
_TRY_S: Final = 2.0
_TRIES: Final = 3

_SPECIAL_IPV4 = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network, unspecified
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by customers of a provider
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, cloud metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Everything else is loopback, link-local, unique local, multicast, IPv4-mapped, NAT64 or reserved.
_GLOBAL_IPV6 = ip_network("2000::/3")
_SPECIAL_IPV6 = tuple(
    ip_network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)


class AddressRefused(OSError):
    """The server may not connect to an address. The message does not name the address."""


@dataclass(frozen=True, slots=True)
class SinkNetworks:
    """The networks that sinks may be in.

    Parameters
    ----------
    allow
        Networks that are allowed besides public addresses. Only in these, http is allowed too.

    Examples
    --------
    >>> networks = SinkNetworks.of(["127.0.0.0/8"])
    >>> networks.permits("127.0.0.1", "http"), networks.permits("10.0.0.1", "https")
    (True, False)
    """

    allow: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allow: Iterable[str]) -> SinkNetworks:
        """Return networks by their texts, such as ``127.0.0.0/8``.

        Raises
        ------
        InvalidInput
            When a text is not a network.
        """
        networks = []
        for text in allow:
            try:
                networks.append(ip_network(text))
            except ValueError as error:
                problem = f"must be a network such as 10.1.0.0/16 or ::1/128; {error}"
                raise InvalidInput("allow-sink", text, problem) from None
        return cls(tuple(networks))

    def permits(self, address: str, scheme: str) -> bool:
        """Return whether a request with a scheme may go to a numeric address."""
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        if any(parsed in network for network in self.allow):
            return True
        return scheme == "https" and _is_public(parsed)

    def connector(self, scheme: str, resolver: AbstractResolver) -> aiohttp.TCPConnector:
        """Return a connector for URLs of one scheme, whose sockets connect to permitted addresses.

        Parameters
        ----------
        scheme
            ``https`` or ``http``. Sessions that use the connector must send nothing else over it.
        resolver
            Resolves the names of hosts. The caller closes it after the connector.
        """

        def make_socket(address: AddrInfoType) -> socket.socket:
            family, kind, protocol, _, target = address
            if not self.permits(str(target[0]), scheme):
                raise AddressRefused(errno.EACCES, "the address of the host is not allowed")
            return socket.socket(family, kind, protocol)

        # No limit of connections here: the sender limits requests by host.
        return aiohttp.TCPConnector(limit=0, resolver=resolver, socket_factory=make_socket)


def system_resolver(**options: Any) -> AbstractResolver:
    """Return a resolver that asks the name servers of the system. It is made in the event loop.

    It waits for any number of answers at once, in no thread: slow name servers delay only the names
    that they know. Names are also read from ``/etc/hosts``, but from nothing else that the system
    may be configured to ask, such as mDNS.

    Parameters
    ----------
    options
        Of `aiodns.DNSResolver`, such as ``nameservers``.
    """
    return aiohttp.AsyncResolver(**{"timeout": _TRY_S, "tries": _TRIES, **options})


def check_sink_url(url: str, networks: SinkNetworks | None = None) -> None:
    """Raise an error if a URL cannot be that of a sink, as far as this shows without DNS.

    Parameters
    ----------
    url
        https, at most 2,048 characters, without user and password. http is accepted if some
        networks are allowed; whether the host is in one of them shows when the server connects.
    networks
        The networks that are allowed besides public addresses; none by default.

    Raises
    ------
    InvalidInput
        When the server would refuse to send anything to the URL.

    Examples
    --------
    >>> check_sink_url("https://example.com/hook")
    >>> check_sink_url("https://[::ffff:10.0.0.1]/")
    Traceback (most recent call last):
    nearcast.errors.InvalidInput: sink: must have a public address ...
    """
    networks = networks or SinkNetworks()
    parsed = _parse(url)
    host = parsed.host or ""
    numeric = _numeric_host(url, host)
    if parsed.scheme == "http" and not networks.allow:
        raise InvalidInput("sink", url, "must be an https URL")
    if numeric and not networks.permits(host, parsed.scheme):
        problem = "must have a public address and https; private and special networks are refused"
        raise InvalidInput("sink", url, problem)


def _parse(url: str) -> URL:
    if len(url) > MAX_URL:
        raise InvalidInput("sink", url, f"must have at most {MAX_URL:,} characters")
    if not url.isprintable() or " " in url or "\\" in url:
        raise InvalidInput("sink", url, "must be a URL without spaces and control characters")
    try:
        parsed = URL(url)
        valid = parsed.scheme in ("https", "http") and bool(parsed.host) and parsed.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidInput("sink", url, "must be a URL such as https://example.com/hook")
    if "@" in urlsplit(url).netloc:
        problem = "must not contain a user or password; use sinkCredential"
        raise InvalidInput("sink", "a URL with a user", problem)
    return parsed


def _numeric_host(url: str, host: str) -> bool:
    """Return whether a host is an address; refuse other spellings of IPv4, such as 0x7f.1."""
    if ":" in host:
        return True
    last = host.rstrip(".").rpartition(".")[2].lower()
    if not (last.isdigit() or last.startswith("0x")):
        return False
    try:
        IPv4Address(host)
    except ValueError:
        problem = "must have a name or an address of four decimal numbers as its host"
        raise InvalidInput("sink", url, problem) from None
    return True


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    return address in _GLOBAL_IPV6 and not any(address in network for network in _SPECIAL_IPV6)
