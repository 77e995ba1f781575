"""Kubernetes' CEL functions of IP addresses and CIDRs, for cel-python (upstream: ``ip.go`` and ``cidr.go`` of
``k8s.io/apiserver/pkg/cel/library``).

A text that cannot be read is refused with upstream's words up to those of Go's parser."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Any, Final

__all__ = ["address", "functions", "prefix"]

_Address = IPv4Address | IPv6Address
_Prefix = IPv4Interface | IPv6Interface

_BROADCAST: Final = IPv4Address("255.255.255.255")
_LINK_LOCAL_MULTICAST_4: Final = ip_network("224.0.0.0/24")
_LINK_LOCAL_MULTICAST_6: Final = [IPv6Network(f"ff{flags:x}2::/16") for flags in range(16)]
_LENGTH: Final = re.compile("0|[1-9][0-9]{0,2}")
_FAILED: Final = "parse error during conversion from string"
_MAPPED: Final = 'IPv4-mapped IPv6 address "{}" is not allowed'


def address(text: str) -> _Address:
    """An address without a zone, not of IPv4 within IPv6. Raises ValueError."""
    try:
        found = ip_address(text)
    except ValueError:
        raise ValueError(f'IP Address "{text}" {_FAILED}') from None
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:
            raise ValueError(f'IP address "{text}" with zone value is not allowed')
        if found.ipv4_mapped is not None:
            raise ValueError(_MAPPED.format(text))
    return found


def prefix(text: str) -> _Prefix:
    """An address and the length of its network; bits behind the network are kept. Raises ValueError."""
    first, slash, length = text.rpartition("/")
    try:
        if not slash or not _LENGTH.fullmatch(length) or "%" in first:
            raise ValueError(text)
        found = ip_interface(text)
    except ValueError:
        raise ValueError(f"network address {_FAILED}: network address {_FAILED}") from None
    if isinstance(found, IPv6Interface) and found.ipv4_mapped is not None:
        raise ValueError(f"network address {_FAILED}: {_MAPPED.format(text)}")
    return found


def functions(types: Any) -> dict[str, Callable[..., Any]]:
    """By name; ``types``: cel-python's. A function of a namespace has two underscores for the dot."""
    boolean, integer, text = types.BoolType, types.IntType, types.StringType

    def readable(read: Callable[[str], Any]) -> Callable[[Any], Any]:
        def answer(given: Any) -> Any:
            try:
                read(str(given))
            except ValueError:
                return boolean(False)
            return boolean(True)

        return answer

    def of_address(ask: Callable[[_Address], bool]) -> Callable[[Any], Any]:
        def answer(given: Any) -> Any:
            if not isinstance(given, _Address) or isinstance(given, _Prefix):
                raise TypeError("no such overload")
            return boolean(ask(given))

        return answer

    def ip(given: Any) -> Any:
        if isinstance(given, str):
            return address(given)
        return given.ip if isinstance(given, _Prefix) else given

    def contains_ip(outer: Any, given: Any) -> Any:
        try:
            return boolean(ip(given) in outer.network)
        except ValueError:  # what upstream says of a text that it cannot read here
            raise TypeError("no such overload") from None

    def contains_cidr(outer: Any, given: Any) -> Any:
        inner = prefix(str(given)) if isinstance(given, str) else given
        narrower = outer.version == inner.version and outer.network.prefixlen <= inner.network.prefixlen
        return boolean(narrower and inner.ip in outer.network)

    def string(given: Any) -> Any:
        if isinstance(given, boolean):
            return text(str(bool(given)).lower())
        return text(str(given)) if isinstance(given, _Address) else text(given)

    return {
        "ip": ip,
        "isIP": readable(address),
        "ip__isCanonical": lambda given: boolean(str(address(str(given))) == str(given)),
        "family": lambda given: integer(given.version),
        "isUnspecified": of_address(lambda given: given.is_unspecified),
        "isLoopback": of_address(lambda given: given.is_loopback),
        "isLinkLocalUnicast": of_address(lambda given: given.is_link_local),
        "isLinkLocalMulticast": of_address(_is_link_local_multicast),
        "isGlobalUnicast": of_address(_is_global_unicast),
        "cidr": lambda given: prefix(str(given)),
        "isCIDR": readable(prefix),
        "containsIP": contains_ip,
        "containsCIDR": contains_cidr,
        "masked": lambda given: ip_interface(given.network.with_prefixlen),
        "prefixLength": lambda given: integer(given.network.prefixlen),
        "string": string,
    }


def _is_link_local_multicast(given: _Address) -> bool:
    if isinstance(given, IPv4Address):
        return given in _LINK_LOCAL_MULTICAST_4
    return any(given in network for network in _LINK_LOCAL_MULTICAST_6)


def _is_global_unicast(given: _Address) -> bool:
    """Private addresses count, as in Go."""
    special = given.is_unspecified or given.is_loopback or given.is_multicast or given.is_link_local
    return not special and given != _BROADCAST
