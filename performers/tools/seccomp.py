"""
The filter of system calls in the sandbox, for what no mount keeps from a program.

Theory of operation. A socket in a file is reached through a read-only mount as well, and that of a container
engine opens the whole machine; an abstract socket is in no file, and a machine's host listens on some. So a
program makes sockets of the Internet and of netlink alone, which its network namespace bounds. Of the family
AF_UNIX it gets connected pairs, which lead nowhere else. Rings of io_uring make sockets without a system
call, and the kernel's keyrings belong to the user and not to the process: these calls fail.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import struct
from typing import Final

# By machine: what the kernel calls it, and the numbers of `socket`, `socketpair`, and of calls that fail.
# From asm/unistd.h; 425 is io_uring_setup, the others are add_key, request_key and keyctl.
_CALLS: Final = {
    "x86_64": (0xC000003E, 41, 53, (425, 248, 249, 250)),
    "aarch64": (0xC00000B7, 198, 199, (425, 217, 218, 219)),
}

# Calls of the other ABI of x86_64 have this bit.
_OTHER_ABI = 0x4000_0000

# Where `struct seccomp_data` has the call, the architecture, and the low halves of the first two arguments.
_NUMBER, _ARCHITECTURE, _FAMILY, _TYPE = 0, 4, 16, 24

# The families of `socket`, and the types of `socketpair`, that a program gets.
_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_IN_PAIRS = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)

# Of the type of a socket, without its flags.
_KIND_BITS = 0xF

_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000


def filter_of(machine: str) -> bytes:
    """The filter for *machine*, as the `sock_filter` of the kernel; raises `KeyError` for unknown ones."""
    architecture, sockets, pairs, failing = _CALLS[machine]
    absent, forbidden = _ERROR | errno.ENOSYS, _ERROR | errno.EPERM
    # Each condition is on the value that was loaded last, and returns where it holds.
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, absent),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 0, 1, _OTHER_ABI),
        (_RETURN, 0, 0, absent),
    ]
    for number in failing:
        steps += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, absent)]
    steps += [
        (_IF_EQUAL, 2, 0, sockets),
        (_IF_EQUAL, 6, 0, pairs),
        (_RETURN, 0, 0, _ALLOW),
        # socket(family, type, protocol)
        (_LOAD, 0, 0, _FAMILY),
        *[(_IF_EQUAL, 8 - index, 0, family) for index, family in enumerate(_FAMILIES)],
        (_RETURN, 0, 0, forbidden),
        # socketpair(family, type, protocol, pair); the kernel makes datagrams of any other type
        (_LOAD, 0, 0, _TYPE),
        (_AND, 0, 0, _KIND_BITS),
        *[(_IF_EQUAL, 2 - index, 0, kind) for index, kind in enumerate(_IN_PAIRS)],
        (_RETURN, 0, 0, forbidden),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join([struct.pack("=HBBI", *step) for step in steps])


def opened_filter() -> int:
    """A descriptor from which the filter of this machine is read, for the caller to close."""
    made = filter_of(platform.machine())
    descriptor = os.memfd_create("filter")
    os.write(descriptor, made)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
