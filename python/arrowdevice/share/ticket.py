"""Tickets: the messages of share/ticket.proto."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys

from . import ipc, wire
from .errors import BadTicket, NotSupported, OtherHost, OtherNetwork, SameProcess
from .schema import MAX_DEPTH, layout_of

VERSION = 1
MAX_SIZE = 4 << 20
CPU, CUDA = 1, 2  # ArrowDeviceType

_SOCKET = re.compile(rb"arrowdevice-[0-9a-f]{32}\Z")
_CHECKSUM_FIELD = wire.message(14, bytes(32))[:2]
_CHECKSUM_SIZE = 2 + 32
_NO_BUFFER = (0, 0)
_MAX_GROWTH = 8
_GROWTH = {8: 16, 13: 32}  # bytes that an element takes in Go, by the number of the field


class Identity:
    """This process, by which it knows its own tickets. A child that is forked is another one."""

    def __init__(self):
        self.renew()

    def renew(self):
        self.process = os.urandom(16)


here = Identity()
os.register_at_fork(after_in_child=here.renew)


def boot_id():
    """The boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return file.read().strip()


def namespace(kind):
    """The inode number of a namespace of this process, or 0 if it is not known."""
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return 0


def socket_name():
    """A new name for a socket in the abstract namespace."""
    return b"arrowdevice-" + os.urandom(16).hex().encode()


class Region:
    """An allocation, which is shared as a whole. handle is the CUipcMemHandle of memory of a GPU."""

    __slots__ = ("handle", "size")

    def __init__(self, handle=b"", size=0):
        self.handle, self.size = handle, size


class Node:
    """An array. Its buffers are pairs of a region, of which 1 is the first and 0 none, and an offset there."""

    __slots__ = ("length", "null_count", "offset", "buffers", "view_sizes", "children", "dictionary")

    def __init__(self, length=0, null_count=0, offset=0):
        self.length, self.null_count, self.offset = length, null_count, offset
        self.buffers, self.view_sizes, self.children, self.dictionary = [], [], [], None

    def below(self):
        return [*self.children, self.dictionary] if self.dictionary else self.children


class Ticket:
    """The content of a ticket."""

    def __init__(self):
        self.boot = self.process = self.socket = self.token = self.device_uuid = self.event = b""
        self.network = self.pids = self.rows = 0
        self.device_type = CPU
        self.regions, self.columns, self.metadata, self.schema = [], [], [], None
        self._body = b""

    def encode(self):
        """The bytes."""
        out = [
            wire.integer(1, VERSION), wire.data(2, self.boot), wire.data(3, self.process), wire.data(4, self.socket),
            wire.data(5, self.token), wire.integer(6, self.device_type), wire.data(7, self.device_uuid),
            *(wire.message(8, wire.data(1, r.handle) + wire.integer(2, r.size)) for r in self.regions),
            wire.data(9, ipc.encode(self.schema)), wire.integer(10, self.rows),
            *(wire.message(11, _encoded(column)) for column in self.columns),
            wire.data(12, self.event),
            *(wire.message(13, wire.data(1, k) + wire.data(2, v)) for k, v in self.metadata),
            wire.integer(15, self.network), wire.integer(16, self.pids),
        ]  # fmt: skip
        return seal(b"".join(out))

    @classmethod
    def decode(cls, data):
        """Checks that a ticket is complete, and decodes the fields about its owner; decode_rest decodes the others."""
        data = bytes(data)
        if len(data) > MAX_SIZE:
            raise _bad("bytes", len(data), f"at most {MAX_SIZE}")
        body = data[:-_CHECKSUM_SIZE]
        if len(data) < _CHECKSUM_SIZE or seal(body) != data:
            raise BadTicket("share: ticket: checksum: the ticket was truncated or changed")
        t, version, broken = cls(), 0, None
        t.device_type = 0
        t.process = t.token = bytes(16)  # as those of Go, if the ticket has none
        t._body = body
        try:
            for number, integer, value in wire.fields(memoryview(body)):
                if number == 1:
                    version = integer
                elif number in (2, 4):
                    setattr(t, "boot" if number == 2 else "socket", bytes(value))
                elif number in (3, 5, 7):
                    name = {3: "process", 5: "token", 7: "device_uuid"}[number]
                    setattr(t, name, _fixed(name, value, 16))
                elif number == 6:
                    t.device_type = wire.signed(integer)
                elif number in (15, 16):
                    setattr(t, "network" if number == 15 else "pids", integer)
        except (wire.Malformed, BadTicket) as error:
            broken = error
        if version != VERSION and (version or not broken):
            raise _bad("version", version, VERSION)
        if broken:
            raise broken if isinstance(broken, BadTicket) else BadTicket(f"share: ticket: {broken}")
        return t

    def check_owner(self):
        """Refuses tickets of other machines and of this process, and sockets that are not of this protocol."""
        boot = boot_id()
        if self.boot != boot:
            raise OtherHost(f"share: open: boot_id {self.boot[:40]!r}, here {boot!r}: the ticket is of another machine")
        network = namespace("net")
        if self.network and network and self.network != network:
            raise OtherNetwork("share: open: the owner of the batch is in another network namespace; run both containers in one")
        if self.process == here.process:
            raise SameProcess("share: open: the ticket is of this process")
        if not _SOCKET.match(self.socket):
            raise _bad("socket", repr(self.socket[:60]), "a name that an owner makes")
        if self.device_type not in (CPU, CUDA):
            raise _bad("device_type", self.device_type, "the CPU or CUDA")

    def in_other_pids(self):
        """Reports whether the owner is known to be in another PID namespace."""
        pids = namespace("pid")
        return 0 not in (self.pids, pids) and self.pids != pids

    def decode_rest(self):
        """Decodes and checks the description of the batch, once the owner has confirmed the ticket. The schema says how many
        arrays there are, so a message of many of them takes no more memory than a schema of so many fields; regions and metadata have
        the bounds of Go."""
        try:
            encoded, columns, budget = b"", [], _MAX_GROWTH * len(self._body)
            for number, integer, value in wire.fields(memoryview(self._body)):
                budget -= _GROWTH.get(number, 0)
                if budget < 0:
                    raise BadTicket("share: ticket: more regions and metadata than a ticket of so many bytes has")
                if number == 8:
                    self.regions.append(_region(value, f"regions[{len(self.regions)}]"))
                elif number == 9:
                    encoded = value
                elif number == 10:
                    self.rows = wire.signed(integer)
                elif number == 11:
                    columns.append(value)
                elif number == 12:
                    self.event = _fixed("event", value, 64)
                elif number == 13:
                    pair = {n: bytes(v) for n, _, v in wire.fields(value) if n in (1, 2)}
                    self.metadata.append((pair.get(1, b""), pair.get(2, b"")))
            self.schema = ipc.decode(encoded)
            if self.rows < 0:
                raise _bad("rows", self.rows, "0 or more")
            if len(columns) != len(self.schema.children):
                raise _bad("columns", len(columns), f"{len(self.schema.children)}, as the schema has it")
            for i, (message, field) in enumerate(zip(columns, self.schema.children)):
                node = _node(message, field, self.regions, f"columns[{i}]", 1)
                if node.length < self.rows:
                    raise _bad(f"columns[{i}].length", node.length, f"at least {self.rows}, the rows")
                self.columns.append(node)
        except wire.Malformed as error:
            raise BadTicket(f"share: ticket: {error}") from None
        self._body = b""


def seal(fields):
    """Appends the checksum to the fields of a ticket."""
    return fields + _CHECKSUM_FIELD + hashlib.sha256(fields).digest()


def _bad(field, got, want):
    return BadTicket(f"share: ticket: {field} = {got}, want {want}")


def _fixed(name, value, size):
    if len(value) != size:
        raise _bad(name, f"{len(value)} bytes", size)
    return bytes(value)


def _some(message, number, want, name):
    """The messages of a field, of which so many are wanted."""
    found = []
    for n, _, value in wire.fields(memoryview(message)):
        if n == number:
            found.append(value)
            if len(found) > want:
                raise _bad(name, f"{len(found)} or more", f"{want}, as the schema has it")
    if len(found) != want:
        raise _bad(name, len(found), f"{want}, as the schema has it")
    return found


def _region(message, at):
    r = Region()
    for number, integer, value in wire.fields(message):
        if number == 1:
            r.handle = _fixed(f"{at}.handle", value, 64)
        elif number == 2:
            r.size = wire.signed(integer)
    if r.size <= 0:
        raise _bad(f"{at}.size", r.size, "at least 1")
    return r


def _place(message):
    region = offset = 0
    for number, integer, _ in wire.fields(message):
        if number == 1:
            region = integer
        elif number == 2:
            offset = wire.signed(integer)
    return (region, offset) if region or offset else _NO_BUFFER


def _node(message, field, regions, at, depth):
    if depth > MAX_DEPTH + 1:
        raise _bad(f"{at}.children", "nested too deeply", f"at most {MAX_DEPTH} levels")
    n, layout = Node(), layout_of(field)
    for number, integer, value in wire.fields(message):
        if number == 1:
            n.length = wire.signed(integer)
        elif number == 2:
            n.null_count = wire.zigzag(integer)
        elif number == 3:
            n.offset = wire.signed(integer)
        elif number == 4:
            n.buffers.append(_place(value))
            if len(n.buffers) > layout.buffers and not layout.is_view:
                raise _bad(f"{at}.buffers", f"{len(n.buffers)} or more", layout.buffers)
        elif number == 5:
            n.view_sizes += wire.numbers(value) if isinstance(value, memoryview) else [wire.signed(integer)]
    _check(n, layout, regions, at)
    children = _some(message, 6, len(field.children), f"{at}.children")
    n.children = [
        _node(c, f, regions, f"{at}.children[{i}]", depth + 1) for i, (c, f) in enumerate(zip(children, field.children))
    ]
    dictionary = None
    for number, _, value in wire.fields(message):
        if number == 7:  # the last one counts, as of any field that is no list
            dictionary = value
    if (dictionary is None) != (field.dictionary is None):
        raise _bad(f"{at}.dictionary", "none" if dictionary is None else "one", "what the schema has")
    if dictionary is not None:
        n.dictionary = _node(dictionary, field.dictionary, regions, f"{at}.dictionary", depth + 1)
    _check_children(n, field, layout.times, at)
    return n


def _check_children(n, field, times, at):
    end = n.offset + n.length
    for i, child in enumerate(n.children):
        if child.length < times * end:
            raise _bad(f"{at}.children[{i}].length", child.length, f"at least {times * end}")
    if field.format == "+r":
        ends, values = n.children
        if ends.null_count > 0:
            raise _bad(f"{at}.children[0].null_count", ends.null_count, "0 for run ends")
        if n.length and not ends.length:
            raise _bad(f"{at}.children[0].length", 0, "at least 1")
        if values.length < ends.length:
            raise _bad(f"{at}.children[1].length", values.length, f"at least {ends.length}")


def _check(n, layout, regions, at):
    """Refuses an array with too few buffers, or one that its region has no room for."""
    end = n.offset + n.length
    if n.length < 0 or n.offset < 0 or end >> 63:
        raise _bad(f"{at}.length", n.length, "lengths and offsets from 0 on")
    if not -1 <= n.null_count <= n.length:
        raise _bad(f"{at}.null_count", n.null_count, f"-1 to {n.length}")
    if len(n.buffers) != layout.buffers and (not layout.is_view or len(n.buffers) < 2):
        raise _bad(f"{at}.buffers", len(n.buffers), layout.buffers)
    if len(n.view_sizes) != (len(n.buffers) - 2 if layout.is_view else 0):
        raise _bad(f"{at}.view_sizes", len(n.view_sizes), "one for each buffer of bytes")
    if n.null_count > 0 and layout.has_validity and n.buffers[0] == _NO_BUFFER:
        raise _bad(f"{at}.buffers[0].region", 0, f"a validity bitmap for null_count = {n.null_count}")
    for i, (region, offset) in enumerate(n.buffers):
        is_data = layout.is_view and i >= 2
        least = n.view_sizes[i - 2] if is_data else layout.least_size(i, end)
        if not region and not offset:
            if n.length and least > 0 and not (layout.has_validity and i == 0):
                raise _bad(f"{at}.buffers[{i}].region", 0, f"a buffer of {least} bytes")
            continue
        if not 0 < region <= len(regions):
            raise _bad(f"{at}.buffers[{i}].region", region, f"1 to {len(regions)}")
        size = regions[region - 1].size
        if offset < 0 or least < 0 or offset + least > size:
            raise _bad(f"{at}.buffers[{i}].offset", offset, f"{least} bytes in the {size} of the region")


def _encoded(n):
    return b"".join(
        [
            wire.integer(1, n.length), wire.sint(2, n.null_count), wire.integer(3, n.offset),
            *(wire.message(4, wire.integer(1, region) + wire.integer(2, offset)) for region, offset in n.buffers),
            wire.packed(5, n.view_sizes),
            *(wire.message(6, _encoded(child)) for child in n.children),
            wire.message(7, _encoded(n.dictionary)) if n.dictionary else b"",
        ]
    )  # fmt: skip


def require_linux(what):
    """Refuses other systems."""
    if not sys.platform.startswith("linux"):
        raise NotSupported(f"share: {what}: on {sys.platform}: CUDA IPC and memfd exist on Linux only")
    if _IN_SUBINTERPRETER:
        raise NotSupported(f"share: {what}: in a subinterpreter: its threads end the process with it")


def _in_subinterpreter():
    """Reports whether this is known to be no main interpreter."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13, and before
        try:
            module = importlib.import_module(name)
            return module.get_current() != module.get_main()
        except (ImportError, AttributeError):
            pass
    return False


_IN_SUBINTERPRETER = _in_subinterpreter()  # a signal handler that raises during an import may leave its lock locked
