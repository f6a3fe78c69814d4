"""Tickets of both languages, as Google's implementation of protocol buffers reads and writes them by share/ticket.proto."""

import importlib
import sys

import pytest

import fakes
import machines
import peer
from arrowdevice.share.ticket import seal

protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools has no wheel for this Python")
unknown_fields = importlib.import_module("google.protobuf.unknown_fields")


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """The module that protoc makes."""
    folder = tmp_path_factory.mktemp("generated")
    source = machines.HERE.parent.parent / "share"
    assert protoc.main(["protoc", f"-I{source}", f"--python_out={folder}", "ticket.proto"]) == 0
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("ticket_pb2")
    finally:
        sys.path.remove(str(folder))


CASES = ["int32", "utf8_view", "struct_dictionary", "list_utf8", "dense_union", "null"]


@pytest.mark.parametrize("case", CASES)
def test_fields(messages, owner, case):
    """Each field has the value that Python's own reader finds."""
    assert case in peer.CASES
    ticket = owner.share(case)
    foreign, own = messages.Ticket.FromString(ticket), fakes.content(ticket)
    assert foreign.version == 1
    for name in ("boot", "process", "socket", "token", "device_type", "device_uuid", "rows", "event", "network", "pids"):
        assert getattr(foreign, name) == getattr(own, name), name
    assert foreign.checksum == fakes.hashlib.sha256(ticket[:-34]).digest()
    assert [(r.handle, r.size) for r in foreign.regions] == [(r.handle, r.size) for r in own.regions]
    assert [(p.key, p.value) for p in foreign.metadata] == own.metadata
    assert len(foreign.metadata) == (2 if owner.language == "go" else 0)
    assert len(foreign.columns) == len(own.columns) == 2
    for theirs, ours in zip(foreign.columns, own.columns):
        same_node(theirs, ours)
    assert len(unknown_fields.UnknownFieldSet(foreign)) == 0
    owner.ask("close")


def same_node(theirs, ours):
    for name in ("length", "null_count", "offset"):
        assert getattr(theirs, name) == getattr(ours, name), name
    assert list(theirs.view_sizes) == ours.view_sizes
    assert [(b.region, b.offset) for b in theirs.buffers] == ours.buffers
    assert len(theirs.children) == len(ours.children)
    for child, own in zip(theirs.children, ours.children):
        same_node(child, own)
    assert theirs.HasField("dictionary") == (ours.dictionary is not None)
    if ours.dictionary:
        same_node(theirs.dictionary, ours.dictionary)


@pytest.mark.parametrize("case", CASES)
def test_tickets_that_it_writes(messages, owner, opener, case):
    """An issuer with generated code leaves the checksum out, and appends it. The bytes are those that the owner has issued."""
    ticket = owner.share(case)
    foreign = messages.Ticket.FromString(ticket)
    foreign.ClearField("checksum")
    again = seal(foreign.SerializeToString(deterministic=True))
    assert again == ticket
    opener.open(again)
    assert opener.ask("compare", case, "nulls") == "equal"
    opener.ask("release")
    owner.ask("wait", 20)


def test_unpacked_view_sizes(messages, opener):
    """A writer may leave a repeated field unpacked: both openers read it, and the owner finds another ticket."""
    with machines.process("go") as owner:
        ticket = owner.share("utf8_view")
        foreign = messages.Ticket.FromString(ticket)
        size = foreign.columns[0].view_sizes[0]
        column = foreign.columns[0]
        column.ClearField("view_sizes")
        raw = column.SerializeToString() + b"\x28" + fakes.wire.integer(5, size)[1:]
        rest = foreign.columns[1].SerializeToString()
        for name in ("columns", "checksum"):
            foreign.ClearField(name)
        body = foreign.SerializeToString() + fakes.wire.message(11, raw) + fakes.wire.message(11, rest)
        t = fakes.content(seal(body))
        assert t.columns[0].view_sizes == [size]
        assert "not the ticket that the owner has issued" in opener.refuses(seal(body)).text
        owner.ask("close")
