"""Each rule of docs/share.md ("From other languages"), of owners and openers in both languages."""

import contextlib
import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import time

import pytest

import fakes
import machines
from arrowdevice.share import ipc, schema, wire
from arrowdevice.share import ticket as tickets
from arrowdevice.share.ticket import MAX_SIZE, Node, Region, seal


@pytest.fixture(scope="module")
def issuer():
    """A process whose ticket others change."""
    with machines.process("python") as p:
        yield p


@pytest.fixture(scope="module")
def real(issuer):
    ticket = issuer.share("int32", "valid", openers=1000)
    yield ticket
    assert issuer.ask("openers") == "0"
    assert issuer.ask("close") == "closed"


def test_damaged_tickets(opener, real):
    """A byte that is changed, or left out, is found by the checksum."""
    for n in range(0, len(real), 5):
        changed = bytearray(real)
        changed[n] ^= 0x10
        for ticket in (bytes(changed), real[:n]):
            assert opener.refuses(ticket).name == "BadTicket"
    assert opener.refuses(real + b"\0").name == "BadTicket"


def own(real):
    """The fields of a ticket without the checksum."""
    return real[:-34]


# What makes the ticket of another process one that is refused before the owner is asked: a function, and the error.
REFUSED = {
    "nothing": (lambda real: b"", "BadTicket"),
    "only a checksum": (lambda real: seal(b""), "BadTicket"),
    "too large": (lambda real: seal(own(real) + wire.data(99, bytes(MAX_SIZE))), "BadTicket"),
    "no version": (lambda real: seal(own(real)[2:]), "BadTicket"),
    "version 2": (lambda real: seal(own(real) + wire.integer(1, 2)), "BadTicket"),
    "a number that is cut off": (lambda real: seal(own(real) + b"\x08\x81"), "BadTicket"),
    "a number of 65 bits": (lambda real: seal(own(real) + b"\x78" + b"\xff" * 9 + b"\x02"), "BadTicket"),
    "bytes that are cut off": (lambda real: seal(own(real) + b"\x12\x7f"), "BadTicket"),
    "field 0": (lambda real: seal(own(real) + b"\x00\x01"), "BadTicket"),
    "a group": (lambda real: seal(own(real) + b"\x0b\x0c"), "BadTicket"),
    "a short process": (lambda real: seal(own(real) + wire.data(3, b"short")), "BadTicket"),
    "a long token": (lambda real: seal(own(real) + wire.data(5, bytes(17))), "BadTicket"),
    "a short UUID": (lambda real: seal(own(real) + wire.data(7, bytes(15))), "BadTicket"),
    "a checksum that is not last": (lambda real: real + wire.integer(99, 1), "BadTicket"),
    "another boot": (lambda real: fakes.forged(real, boot=b"1234"), "OtherHost"),
    "no boot": (lambda real: fakes.forged(real, boot=b""), "OtherHost"),
    "another network": (lambda real: fakes.forged(real, network=lambda n: n + 1), "OtherNetwork"),
    "another program's socket": (lambda real: fakes.forged(real, socket=b"docker"), "BadTicket"),
    "a socket with more digits": (lambda real: fakes.forged(real, socket=lambda s: s + b"0"), "BadTicket"),
    "a socket with capital letters": (lambda real: fakes.forged(real, socket=b"arrowdevice-" + b"A" * 32), "BadTicket"),
    "a socket that is gone": (lambda real: fakes.forged(real, socket=b"arrowdevice-" + b"0" * 32), "OwnerGone"),
    "a device that cannot be shared": (lambda real: fakes.forged(real, device_type=10), "BadTicket"),
    "a GPU that is not there": (lambda real: fakes.forged(real, device_type=2, device_uuid=b"another machine!"), "NotSupported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tickets_refused_by_themselves(opener, issuer, real, name):
    change, error = REFUSED[name]
    refused = opener.refuses(change(real))
    assert refused.name == error, refused
    assert issuer.ask("openers") == "0"


def test_tickets_of_the_same_process(opener):
    assert opener.refuses(opener.share()).name == "SameProcess"
    opener.ask("close")


# What an owner compares: the whole ticket.
CHANGED = {
    "the rows": lambda real: fakes.forged(real, rows=lambda n: n + 1),
    "the PID namespace": lambda real: fakes.forged(real, pids=lambda n: n + 1),
    "no network": lambda real: fakes.forged(real, network=0),
    "a field of a later version": lambda real: seal(own(real) + wire.integer(99, 1)),
    "a fixed field of 32 bits": lambda real: seal(own(real) + b"\x9d\x06" + bytes(4)),
    "a fixed field of 64 bits": lambda real: seal(own(real) + b"\x99\x06" + bytes(8)),
    "another process": lambda real: fakes.forged(real, process=bytes(16)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_tickets_that_were_not_issued(owner, opener, name):
    ticket = owner.share(openers=1)
    refused = opener.refuses(CHANGED[name](ticket))
    assert refused.name == "BadTicket" and "not the ticket that the owner has issued" in refused.text, refused
    opener.open(ticket)  # which refusals have not used up
    opener.ask("release")
    owner.ask("wait", 60)


def column(**changes):
    """A ticket whose first column is changed: values, or functions of what was there."""

    def change(columns):
        for name, value in changes.items():
            setattr(columns[0], name, value(getattr(columns[0], name)) if callable(value) else value)
        return columns

    return {"columns": change}


def nested(depth):
    """A column of lists in lists."""

    def columns(_):
        top = n = Node(0)
        for _ in range(depth):
            n.buffers, n.children = [(0, 0), (0, 0)], [Node(0)]
            n = n.children[0]
        n.buffers = [(0, 0), (0, 0)]
        return [top]

    def of(_):
        f = schema.Field("i")
        for _ in range(depth):
            f = schema.Field("+l", children=[f])
        return schema.Field("+s", flags=0, children=[f])

    return {"columns": columns, "schema": of, "rows": 0}


def runs(ends, values, nulls=0):
    """A column of run-end encoded values, of so many run ends and values."""

    def columns(_):
        top = Node(5)
        top.children = [Node(ends, nulls), Node(values)]
        for child in top.children:
            child.buffers = [(1, 0), (1, 0)]
        return [top]

    field = schema.Field("+r", children=[schema.Field("i"), schema.Field("i")])
    return {"columns": columns, "schema": schema.Field("+s", flags=0, children=[field]), "rows": 5}


# What an owner that forges tickets is found out by, after it has accepted: the changes, and what the error names.
FORGED = {
    "an offset beyond its region": (column(buffers=[(0, 0), (1, 1 << 20)]), "columns[0].buffers[1].offset = 1048576"),
    "an offset before its region": (column(buffers=[(0, 0), (1, -8)]), "columns[0].buffers[1].offset = -8"),
    "a region that is not there": (column(buffers=[(0, 0), (2, 0)]), "columns[0].buffers[1].region = 2"),
    "an offset without a region": (column(buffers=[(0, 0), (0, 8)]), "columns[0].buffers[1].region = 0"),
    "no values": (column(buffers=[(0, 0), (0, 0)]), "[0]"),
    "too few buffers": (column(buffers=[(0, 0)]), "[0]"),
    "too many buffers": (column(buffers=lambda b: [*b, b[1]]), "[0]"),
    "a long column": (column(length=1 << 40), "columns[0]"),
    "a column of many bits": (column(length=(1 << 63) - 1), "columns[0]"),
    "a length below 0": (column(length=-1), "columns[0].length = -1"),
    "an offset below 0": (column(offset=-1), "columns[0]"),
    "fewer than the rows": (column(length=2), "[0]"),
    "rows below 0": ({"rows": -1}, ""),
    "children of numbers": (column(children=[Node()]), "columns[0].children"),
    "a dictionary of numbers": (column(dictionary=Node()), "columns[0]"),
    "view sizes of numbers": (column(view_sizes=[1]), ""),
    "another column": ({"columns": lambda columns: [*columns, columns[0]]}, "columns = 3"),
    "a column that is missing": ({"columns": lambda columns: columns[1:]}, "columns = 1"),
    "a region of no bytes": ({"regions": [Region(size=0)]}, "regions[0].size"),
    "a region below 0": ({"regions": [Region(size=-4096)]}, "regions[0].size"),
    "a short handle": ({"regions": [Region(b"short", 4096)]}, "regions[0].handle"),
    "an event of host memory": ({"event": bytes(64)}, "event"),
    "arrays 66 deep": (nested(66), ""),
    "a decimal of many digits": ({"schema": lambda s: with_format(s, "d:99,0")}, "schema"),
    "more nulls than elements": (column(null_count=99), "[0].null_count = 99"),
    "a null count below -1": (column(null_count=-2), "[0].null_count = -2"),
    "nulls without a bitmap": (column(null_count=1, buffers=lambda b: [(0, 0), b[1]]), "want a validity bitmap for null_count"),
    "no run ends": (runs(0, 1), "[0].children[0].length = 0"),
    "fewer values than run ends": (runs(2, 1), "[0].children[1].length = 1"),
    "run ends that are null": (runs(2, 2, nulls=1), "[0].children[0].null_count = 1"),
    "metadata without end": ({"metadata": [(b"", b"")] * 4000}, "of so many bytes has"),
    "run ends of 8 bits": (
        {**runs(2, 2), "schema": schema.Field("+s", flags=0, children=[schema.Field("+r", children=[schema.Field("c")] * 2)])},
        "schema",
    ),
    "an open union": ({"schema": lambda s: with_format(s, "+us:0")}, "schema"),
}


def with_format(s, format):
    s.children[0].format = format
    return s


# The openers differ in when they find these, and so in what they name.
_LATER = {"view sizes of numbers", "an open union"}


@pytest.mark.parametrize("name", FORGED)
def test_owners_that_forge(opener, real, name):
    changes, text = FORGED[name]
    before = opener.held()
    with fakes.owner(files=[fakes.file_of(4096)]) as owner:
        refused = opener.refuses(owner.ticket(real, **changes))
        machines.eventually(lambda: owner.last)
        assert owner.last == [b"f"], "the owner is told"
    assert refused.name == "BadTicket" or name in _LATER, refused
    assert text in refused.text, refused
    opener.holds_at_most(before)


def test_values_of_the_other_byte_order(opener, real, monkeypatch):
    def encode(of):
        w = ipc._Writer()
        header = {0: ("h", 1), 1: w.tables([w.field(f) for f in of.children])}
        w.table(0, {0: ("h", 4), 1: ("B", 1), 2: w.sub(header), 3: ("q", 0)})
        w.align(8)
        return b"\xff" * 4 + len(w.b).to_bytes(4, "little") + bytes(w.b) + b"\xff" * 4 + bytes(4)

    monkeypatch.setattr(ipc, "encode", encode)
    with fakes.owner(files=[fakes.file_of(4096)]) as owner:
        refused = opener.refuses(owner.ticket(real))
    assert refused.name == "BadTicket" and "endian" in refused.text, refused


def test_what_a_ticket_need_not_have(opener, real):
    """Nor does a field of a large number make it one of another format."""
    with fakes.owner(files=[fakes.file_of(r.size) for r in fakes.content(real).regions]) as owner:
        ticket = fakes.forged(real, socket=owner.name, process=b"", token=b"")
        opener.open(seal(own(ticket) + wire.integer(2**31 - 1, 1)))
        opener.ask("release")
        machines.eventually(lambda: owner.last == [b"r"])


# What an owner replies, and sends, and the error.
REPLIES = {
    "used up": (dict(reply=b"\2"), "Used"),
    "not the ticket": (dict(reply=b"\3"), "BadTicket"),
    "another user": (dict(reply=b"\4"), "OtherUser"),
    "another user, early": (dict(reply=b"\4", early=True), "OtherUser"),
    "an unknown reply": (dict(reply=b"\x63"), "BadTicket"),
    "the end": (dict(reply=None), "OwnerGone"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_replies(opener, real, name):
    options, error = REPLIES[name]
    before = opener.held()
    with fakes.owner(**options) as owner:
        ticket = owner.ticket(real)
        for _ in range(50 if owner.early else 1):  # the opener is sometimes the first, and sometimes the owner
            assert opener.refuses(ticket).name == error
        if not owner.early:
            assert owner.requests == [fakes.TEXT + fakes.content(ticket).token + hashlib.sha256(ticket).digest()]
    opener.holds_at_most(before)


# The files that an owner sends: their sizes and seals, and what the error has.
FILES = {
    "no file": ([], "0 files, want 1"),
    "a file too many": ([(4096, 6), (4096, 6)], "2 files, want 1"),
    "no seals": ([(4096, 0)], "seals"),
    "a seal that is missing": ([(4096, fakes.SHRINK)], "seals"),
    "the other seal that is missing": ([(4096, fakes.GROW)], "seals"),
    "a file that is too small": ([(4095, 6)], "4095 bytes, want 4096"),
}


@pytest.mark.parametrize("name", FILES)
def test_files(opener, real, name):
    files, text = FILES[name]
    before = opener.held()
    with fakes.owner(files=[fakes.file_of(*f) for f in files]) as owner:
        refused = opener.refuses(owner.ticket(real))
        assert refused.name == "Error" and text in refused.text, refused
        machines.eventually(lambda: owner.last)
        assert owner.last == [b"f"]
    opener.holds_at_most(before)


def test_a_file_may_be_larger(opener, real):
    with fakes.owner(files=[fakes.file_of(8192)]) as owner:
        opener.open(owner.ticket(real))
        assert not owner.last
        opener.ask("release")
        machines.eventually(lambda: owner.last)
        assert owner.last == [b"r"], "the owner is told of the release"


def test_owner_that_says_nothing(opener, real):
    with fakes.owner(reply=b"") as owner:
        assert opener.refuses(owner.ticket(real), 0.3).name == "Timeout"
        machines.eventually(lambda: owner.last)
        assert owner.last == [b"f"]


def test_full_backlog(opener, real):
    """An owner that accepts nobody."""
    name = tickets.socket_name()
    with contextlib.ExitStack() as sockets:
        listener, *others = [sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(4)]
        listener.bind(b"\0" + name)
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            for other in others:
                other.setblocking(False)
                other.connect(b"\0" + name)
        assert opener.refuses(fakes.forged(real, socket=name, process=bytes(16)), 0.3).name == "Timeout"


# Owners: what an opener sends, and the reply; b"" is the end of the connection.
REQUESTS = {
    "the request": (dict(), b"\1"),
    "another token": (dict(token=bytes(16)), b"\2"),
    "another digest": (dict(digest=bytes(32)), b"\3"),
    "another protocol": (dict(text=b"arrowdevice share 2\n"), b""),
    "a short message": (dict(digest=bytes(31)), b""),
    "a long message": (dict(more=b"\0"), b""),
    "only the text": (dict(token=b"", digest=b""), b""),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(owner, name):
    options, reply = REQUESTS[name]
    ticket = owner.share("utf8")
    with fakes.Opener(ticket) as opener:
        assert opener.request(**options) == reply
        regions = fakes.content(ticket).regions
        assert len(opener.files) == (len(regions) if reply == b"\1" else 0)
        for file, region in zip(opener.files, regions):
            assert os.fstat(file).st_size == region.size and region.size % os.sysconf("SC_PAGESIZE") == 0
            assert fcntl.fcntl(file, fakes.GET_SEALS) & 6 == 6
            assert not fakes.map_writable(file, region.size)
        if reply == b"\1":
            opener.send(b"r")
            owner.ask("wait", 60)
        else:
            assert owner.ask("openers") == "0"
    owner.ask("close")
    assert owner.ask("wait", 60) == "released"


def test_owner_replies_to_nobody_twice(owner):
    """After one batch, a connection is of no other use."""
    ticket = owner.share(openers=2)
    with fakes.Opener(ticket) as opener:
        assert opener.request() == b"\1"
        assert opener.request() == b"", "the second request ends the batch"
        machines.eventually(lambda: owner.ask("openers") == "0")
    owner.ask("close")
    owner.ask("wait", 60)


def test_failed_openings_do_not_count(owner):
    ticket = owner.share()
    for last in (b"f", b"f", b"r"):
        with fakes.Opener(ticket) as opener:
            assert opener.request() == b"\1"
            with fakes.Opener(ticket) as other:
                assert other.request() == b"\2", "it is open"
            opener.send(last)
            assert opener.socket.recv(1) == b"", "the owner closes its end once it knows"
    owner.ask("wait", 60)


def test_openers_that_are_silent(owner):
    """An owner closes the connection after five seconds, and sooner while more than 128 are pending."""
    ticket = owner.share()
    alone = fakes.Opener(ticket)
    begin = time.monotonic()
    assert alone.socket.recv(1) == b""
    assert time.monotonic() - begin > 4
    many = [fakes.Opener(ticket) for _ in range(140)]
    begin = time.monotonic()
    assert many[-1].socket.recv(1) == b""
    assert time.monotonic() - begin < 4, "the last of many"
    with fakes.Opener(ticket) as opener:
        assert opener.request() == b"\1", "others are served"
        opener.send(b"r")
    for o in (alone, *many):
        o.__exit__()
    owner.ask("wait", 60)


def test_more_openers_than_may_be_pending(owner):
    """The 257th connection waits in the backlog."""
    ticket = owner.share()
    name, before = b"\0" + fakes.content(ticket).socket, owner.held()[0]
    with contextlib.ExitStack() as sockets:
        many = [sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(400)]
        for silent in many:
            silent.connect(name)
        most = max((owner.held()[0], time.sleep(0.01))[0] for _ in range(30))
        assert most <= before + 256 + 5, "the listener, and what earlier tests have not closed yet"
        with fakes.Opener(ticket) as opener:
            assert opener.request() == b"\1"
            opener.send(b"r")
    owner.ask("wait", 60)


def test_connections_are_pending_once(owner):
    """Those that were accepted or refused are not pending any more, however many there were."""
    ticket = owner.share()
    for _ in range(270):
        with fakes.Opener(ticket) as opener, fakes.Opener(ticket) as other:
            assert opener.request() == b"\1"
            assert other.request(token=bytes(16)) == b"\2"
            opener.send(b"f")
            assert opener.socket.recv(1) == b""
    with fakes.Opener(ticket) as opener:
        time.sleep(0.3)  # more than the time that an owner has for openers while many are pending
        assert opener.request() == b"\1"
        opener.send(b"r")
    owner.ask("wait", 60)


CHILD = """
import sys, time
import fakes
opener = fakes.Opener(bytes.fromhex(sys.argv[1]))
assert opener.request() == b"\\1"
if sys.argv[2] == "closes":
    opener.socket.close()
print("has it", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["is killed", "closes"])
def test_openers_that_end_without_a_word(owner, how):
    """An owner waits for the exit of a process that did not send a byte."""
    ticket = owner.share()
    paths = os.pathsep.join(p for p in sys.path if p)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, ticket.hex(), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert child.stdout.readline() == "has it\n"
    with pytest.raises(machines.Refused) as refused:
        owner.ask("wait", 0.2)
    assert refused.value.name == "Timeout"
    assert owner.ask("openers") == "1", "the process is alive"
    child.kill()
    assert owner.ask("wait", 60) == "released"
    child.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_other_users(owner):
    """The owner replies before it reads, and the process of another user is no opener."""
    ticket = owner.share()
    child = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(b"\\0" + sys.argv[1].encode())
print(s.recv(10))
"""
    name = fakes.content(ticket).socket.decode()
    said = subprocess.run(["/usr/bin/env", "python3", "-c", child, name], user=65533, group=65533, capture_output=True, text=True)
    assert said.stdout == "b'\\x04'\n", said
    assert owner.ask("openers") == "0"
    owner.ask("close")
    owner.ask("wait", 60)


def test_tickets_that_are_used_up(owner, opener):
    first = owner.share()
    opener.open(first)
    assert opener.refuses(first).name == "Used"
    opener.ask("release")
    owner.ask("wait", 60)
    assert opener.refuses(first).name == "OwnerGone", "it shares nothing any more"
    second = owner.share(openers=2)
    assert opener.refuses(first).name in ("Used", "OwnerGone")
    opener.open(second)
    opener.open(second)
    assert owner.ask("openers") == "2"
    assert opener.refuses(second).name == "Used"
    opener.ask("release")
    owner.ask("wait", 60)


def test_closed_tickets(owner, opener):
    ticket = owner.share(openers=2)
    opener.open(ticket)
    owner.ask("close")
    assert opener.refuses(ticket).name == "Used"
    assert opener.ask("compare", "int32", "nulls") == "equal", "it keeps what it has"
    opener.ask("release")
    assert owner.ask("wait", 60) == "released"


OTHERS_SOCKET = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(b"\\0" + sys.argv[1].encode())
s.listen()
print("listens", flush=True)
print(s.accept()[0].recv(100), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_owners_of_other_users(opener, real):
    """An opener sends them nothing of the ticket."""
    name = tickets.socket_name()
    command = ["/usr/bin/env", "python3", "-c", OTHERS_SOCKET, name.decode()]
    with subprocess.Popen(command, user=65533, group=65533, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "listens\n"
        assert opener.refuses(fakes.forged(real, socket=name, process=bytes(16))).name == "OtherUser"
        assert other.stdout.readline() == "b''\n"


def test_openings_that_fail_after_the_end(owner):
    """A ticket that was closed cannot be opened again."""
    ticket = owner.share(openers=2)
    with fakes.Opener(ticket) as opener:
        assert opener.request() == b"\1"
        owner.ask("close")
        opener.send(b"f")
        assert owner.ask("wait", 20) == "released"


def test_openers_that_do_not_read_the_reply(owner):
    """Their last byte follows the error of the connection."""
    ticket = owner.share()
    for _ in range(30):
        machines.eventually(lambda: owner.ask("openers") == "0")
        with fakes.Opener(ticket) as opener:
            opener.socket.send(fakes.TEXT + opener.content.token + hashlib.sha256(ticket).digest())
            machines.eventually(lambda: owner.ask("openers") == "1")
            opener.send(b"f")
    machines.eventually(lambda: owner.ask("openers") == "0")
    with fakes.Opener(ticket) as opener:
        assert opener.request() == b"\1", "no one has had it"
        opener.send(b"r")
    owner.ask("wait", 60)
