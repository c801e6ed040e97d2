"""TUN devices: an interface in a namespace whose packets a process reads and writes."""

from __future__ import annotations

import fcntl
import os
import struct

from .namespace import within

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_OFFLOAD_CHECKSUM, _OFFLOAD_TCP4 = 0x01, 0x02


def open_tun(namespace: str, interface: str, *, trains: bool) -> int:
    """Make a TUN device in a namespace and return its descriptor, non-blocking.

    Packets come with the 10-byte virtio header, so that checksums and, with `trains`, trains of TCP
    segments pass from device to device without being computed or cut.
    """
    with within(namespace):
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", interface.encode(), flags))
        fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _OFFLOAD_CHECKSUM | (_OFFLOAD_TCP4 if trains else 0))
    return descriptor
