"""Owners and openers that speak the protocol by themselves, byte by byte, and tickets that nobody has issued."""

import array
import contextlib
import copy
import ctypes
import fcntl
import hashlib
import mmap
import os
import socket
import threading
import time

from arrowdevice.share import ticket as tickets
from arrowdevice.share import wire  # noqa: F401

import machines

TEXT = b"arrowdevice share 1\n"
SHRINK, GROW, FUTURE_WRITE, SEAL = 2, 4, 16, 1
GET_SEALS, ADD_SEALS = 1034, 1033


def content(ticket):
    """All of a ticket, which others can change."""
    t = tickets.Ticket.decode(ticket)
    t.decode_rest()
    return t


def forged(ticket, **changes):
    """A ticket with other values, and a checksum that fits."""
    t = content(ticket)
    for name, value in changes.items():
        setattr(t, name, value(copy.deepcopy(getattr(t, name))) if callable(value) else value)
    return t.encode()


def file_of(size, seals=SHRINK | GROW):
    """A file as an owner sends it."""
    file = os.memfd_create("arrowdevice", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    if seals:
        fcntl.fcntl(file, ADD_SEALS, seals)
    return file


class Owner:
    """A socket on which a thread accepts openers, one after the other: it records the request, replies a byte with files, and records
    what follows, for which it looks after a pause of some seconds."""

    def __init__(self, reply=b"\1", files=(), early=False, pause=0):
        self.reply, self.files, self.early, self.pause = reply, files, early, pause
        self.name = tickets.socket_name()
        self.requests, self.last = [], []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(b"\0" + self.name)
        self.listener.listen()
        self.ending = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while True:
            connection, _ = self.listener.accept()
            with connection:
                if self.ending:
                    return
                connection.settimeout(machines.LIMIT)
                if not self.early:
                    self.requests.append(connection.recv(1000))
                if self.reply is None:
                    continue
                if self.reply:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", self.files))] if self.files else []
                    connection.sendmsg([self.reply], rights)
                if self.early:
                    connection.close()  # with the request unread
                    continue
                time.sleep(self.pause)
                self.last.append(connection.recv(1000))

    def ticket(self, real, **changes):
        """The ticket of another owner, changed to be of this one."""
        return forged(real, socket=self.name, process=bytes(16), **changes)

    def close(self):
        self.ending = True
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(b"\0" + self.name)
            self.thread.join(machines.LIMIT)
        self.listener.close()
        for file in self.files:
            os.close(file)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def owner(**options):
    made = Owner(**options)
    try:
        yield made
    finally:
        made.close()


class Opener:
    """A connection to an owner."""

    def __init__(self, ticket):
        self.ticket = ticket
        self.content = tickets.Ticket.decode(ticket)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(machines.LIMIT)
        self.files = []
        try:
            self.socket.connect(b"\0" + self.content.socket)
        except OSError:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        for file in self.files:
            os.close(file)

    def request(self, text=TEXT, token=None, digest=None, more=b""):
        """Sends a request, and receives the reply."""
        token = self.content.token if token is None else token
        self.socket.send(text + token + (hashlib.sha256(self.ticket).digest() if digest is None else digest) + more)
        reply, files, _, _ = socket.recv_fds(self.socket, 100, 253)
        self.files += files
        return reply

    def send(self, byte):
        self.socket.send(byte)


def map_writable(file, size):
    """Reports whether a file can be mapped for writing."""
    try:
        mmap.mmap(file, size).close()
    except PermissionError:
        return False
    return True


def address(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
