"""The process at the other end of a socket."""

from __future__ import annotations

import functools
import os
import socket
import struct

_SO_PEERPIDFD = 77


def peer_of(connection):
    """The PID and the user of the process at the other end, as the kernel reports them."""
    pid, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return pid, user


@functools.lru_cache(maxsize=None)
def _overflow_user():
    """The number that stands for all users that the user namespace of this process does not map, or None if it maps all."""
    with open("/proc/self/uid_map") as file:
        if file.read().split() == ["0", "0", "4294967295"]:
            return None
    try:
        with open("/proc/sys/kernel/overflowuid") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534


def is_same_user(user):
    """Reports whether a peer is a process of the same user."""
    return user == os.geteuid() and user != _overflow_user()


def open_process(connection, pid):
    """A pidfd of the process at the other end, or None if it has exited, or is in a PID namespace that is not visible here: from the
    socket, which since Linux 6.5 works across PID namespaces, or by its number."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        pass
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
