"""Signal handlers that raise, such as that of Ctrl-C: whenever one does, nothing that a call has opened, mapped or retained is left in
this process or in the owner's, and the next call works."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import fakes
import interrupts
import machines
from arrowdevice import share
from arrowdevice.share import cdata, event, memory, opener, peer, wire
from arrowdevice.share import ticket as tickets
from arrowdevice.share import owner as owners
from arrowdevice.share.worker import releaser, worker

BATCH = pa.record_batch({"n": [1, 2]})


class Stream:
    """An object with nothing but a stream."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.Table.from_batches([BATCH]).__arrow_c_stream__(requested_schema)


def allocate():
    share.allocate(10_000)


def share_batch():
    with share.share(BATCH) as shared:
        assert shared.ticket


def share_stream():
    share.share(Stream())  # its ticket is not read


def share_allocated():
    numbers = np.frombuffer(share.allocate(80), np.int64)
    share.share(pa.record_batch({"n": pa.array(numbers)})).close()


def wait():
    with share.share(BATCH) as shared:
        with pytest.raises(TimeoutError):
            shared.wait(0.0001)
    shared.wait(machines.LIMIT)


CALLS = {call.__name__: call for call in (allocate, share_batch, share_stream, share_allocated, wait)}
SENDERS = {"SIGALRM": interrupts.Alarms, "SIGINT": interrupts.Kills}


def held():
    """What this process has of all that a call may leave."""
    with open("/proc/self/maps") as maps:
        mappings = maps.read().count("/memfd:arrowdevice")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": mappings,
        "threads": len(os.listdir("/proc/self/task")),
        "structs": cdata.exported() + len(cdata._offers),
        "blocks": len(memory._blocks),
        "objects": len(worker._ends) + len(releaser._ends),
        "offers": len(owners._owner.by_token) + len(owners._owner.connections),
        "bytes of PyArrow": pa.total_allocated_bytes(),
    }


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Also without the collector of cycles."""
    gc.collect()
    gc.disable()
    for call in CALLS.values():
        call()
    machines.settle()
    before = held()

    def left():
        return {name: (value, before[name]) for name, value in held().items() if value != before[name]}

    yield
    with share.share(BATCH) as shared, fakes.Opener(shared.ticket) as other:
        assert other.request() == b"\1"
        other.send(b"r")
        shared.wait(machines.LIMIT)
    del shared
    try:
        machines.eventually(lambda: not left())
    except AssertionError:
        raise AssertionError(f"left, and before: {left()}") from None
    finally:
        gc.enable()


@pytest.fixture(params=machines.LANGUAGES)
def open_batch(request):
    """Opens a batch of an owner, which in the end has no opener."""
    with machines.process(request.param) as owner:
        ticket = owner.share(openers=1 << 30)

        def open_batch():
            peer._overflow_user.cache_clear()  # it reads files again
            with share.open(ticket) as batch:
                assert pa.record_batch(batch).num_rows == 8

        open_batch()
        machines.eventually(lambda: owner.ask("openers") == "0")
        before = owner.held()
        yield open_batch
        machines.eventually(lambda: owner.ask("openers") == "0")
        owner.holds_at_most(before)
        open_batch()
        owner.ask("close")
        assert owner.ask("wait", machines.LIMIT) == "released"


@pytest.mark.parametrize("call", CALLS)
def test_each_point(call):
    interrupts.at_each_point(CALLS[call])


def test_each_point_of_open(open_batch):
    interrupts.at_each_point(open_batch)


def test_each_point_of_exports():
    """Also of two that are close to each other, as in what undoes an export."""
    with machines.process("go") as owner, share.open(owner.share()) as batch:
        for export in (batch.__arrow_c_array__, batch.__arrow_c_device_array__, batch.__arrow_c_schema__):
            for again in range(20):
                number = 0
                while interrupts.at_point(number, export, again):
                    number += 1


@pytest.mark.parametrize("name", SENDERS)
@pytest.mark.parametrize("call", CALLS)
def test_random_times(call, name):
    interrupts.at_random(SENDERS[name](), interrupts.COUNT, CALLS[call])


@pytest.mark.parametrize("name", SENDERS)
def test_random_times_of_open(open_batch, name):
    interrupts.at_random(SENDERS[name](), interrupts.COUNT, open_batch)


@pytest.mark.parametrize("language", machines.LANGUAGES)
def test_random_times_of_an_owner(language):
    """What another process has open stays so until it releases it."""
    with machines.process(language) as opener:

        def share_with_opener():
            with share.share(BATCH) as shared:
                opener.open(shared.ticket)
                assert shared.openers == 1
            with pytest.raises(TimeoutError):
                shared.wait(0)
            opener.ask("release")
            shared.wait(machines.LIMIT)

        interrupts.at_random(interrupts.Alarms(), interrupts.COUNT, share_with_opener)
        opener.ask("release")


def test_ticket_of_an_interrupted_opening():
    """It can be opened once more."""
    with machines.process("go") as owner:
        ticket, number = owner.share(), 0

        def is_open():
            try:
                share.open(ticket).close()
            except share.Used:  # the owner does not know yet
                return False
            return True

        while interrupts.at_point(number, lambda: share.open(ticket)):
            machines.eventually(is_open)
            ticket = owner.share()
            number += 11
        assert number


def test_ticket_of_an_opening_that_fails(monkeypatch):
    """It can be opened as soon as the error is raised, if the owner answers in time."""
    monkeypatch.setattr(opener, "_WAIT_FOR_OWNER", machines.LIMIT)

    def fail(self):
        raise ValueError("no rest")

    with machines.process("go") as owner:
        ticket = owner.share()
        for _ in range(20):
            with monkeypatch.context() as patch:
                patch.setattr(tickets.Ticket, "decode_rest", fail)
                with pytest.raises(ValueError, match="no rest"):
                    share.open(ticket)
        share.open(ticket).close()
        assert owner.ask("wait", machines.LIMIT) == "released"


def test_errors_of_the_worker():
    """They refer to no object that the call has made."""
    with machines.process("go") as owner:
        ticket = fakes.forged(owner.share(), socket=tickets.socket_name(), process=bytes(16))
        with pytest.raises(share.OwnerGone):
            share.open(ticket)
        owner.ask("close")


class Nulls:
    """A batch that cannot be shared."""

    def __arrow_c_array__(self, requested_schema=None):
        nulls = pa.StructArray.from_arrays([pa.array([1, 2])], ["a"], mask=pa.array([True, False]))
        return nulls.__arrow_c_array__()


def test_error_that_is_kept():
    """It does not keep what could not be shared."""
    before = pa.total_allocated_bytes()
    with pytest.raises(share.NotShareable, match="without nulls") as raised:
        share.share(Nulls())
    machines.eventually(lambda: pa.total_allocated_bytes() == before)
    assert raised.value.__traceback__
    del raised  # the frame of this test is in it


def test_reply_that_nobody_has_read(monkeypatch):
    """The connection stays open until the owner knows: it would be reset, with the reply in it."""
    monkeypatch.setattr(opener, "_WAIT_FOR_OWNER", machines.LIMIT)
    monkeypatch.setattr(opener._Connection, "_wait_for_reply", interrupted_after(opener._Connection._wait_for_reply))
    with machines.process("go") as real, fakes.owner(files=[fakes.file_of(4096)], pause=0.05) as owner:
        with pytest.raises(interrupts.Interrupted):
            share.open(owner.ticket(real.share()))
        machines.eventually(lambda: owner.last == [b"f"])
        real.ask("close")


def interrupted_after(function):
    def call(*arguments):
        function(*arguments)
        raise interrupts.Interrupted

    return call


def test_first_call():
    """Whenever it ends, the next one has a thread."""
    program = """
import os
import interrupts
from arrowdevice import share

def held():
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), maps.read().count("/memfd:arrowdevice")

def allocate():
    share.allocate(1)

number, is_last = 0, False
while not is_last:
    child = os.fork()
    if child == 0:
        before = held()
        is_last = not interrupts.at_point(number, allocate)
        share.allocate(1)
        share.allocate(1)  # once the first is freed
        while held() != before or len(os.listdir("/proc/self/task")) != 2:
            pass
        os._exit(3 if is_last else 0)
    number += 1
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 3), status
    is_last = status == 3
print(number)
"""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert (out.returncode, out.stderr) == (0, "") and int(out.stdout) > 5, out


FIRST_CALLS = f"""
import faulthandler, sys, threading
faulthandler.dump_traceback_later({machines.LIMIT}, exit=True)
import pyarrow as pa
import fakes
from arrowdevice import share
gone = threading.Semaphore(0)
with threading._active_limbo_lock:
    share.allocate(1)
    batch = share.open(bytes.fromhex(sys.stdin.readline()), owner_gone=gone.release)
    array = pa.record_batch(batch)
    print("open", flush=True)
    sys.stdin.readline()
    with share.share(array) as shared, fakes.Opener(shared.ticket) as opener:
        assert opener.request() == b"\\1"
        opener.send(b"r")
        shared.wait()
gone.acquire()
"""


def test_first_calls_during_a_start_of_a_thread():
    """By a handler that runs while threading has its lock: no thread of the package needs that, but the one of owner_gone."""
    with machines.program(FIRST_CALLS) as program:
        with machines.process("go") as owner:
            program.stdin.write(owner.share().hex() + "\n")
            program.stdin.flush()
            assert program.stdout.readline() == "open\n"
        program.stdin.write("\n")


def test_bound_of_an_interrupted_opening():
    """It does not bound what is shared later."""
    wire.until(0).__enter__()  # whose __exit__ was interrupted
    with share.share(pa.record_batch({str(i): [1] for i in range(600)})):
        pass


def test_event():
    """It can be set, and waited for, after an interrupted wait."""
    made = event.Event()
    interrupts.at_each_point(lambda: made.wait(0.0001))
    thread = threading.Thread(target=made.set)
    thread.start()
    assert made.wait(machines.LIMIT) and made.wait(0)
    thread.join(machines.LIMIT)
    assert not thread.is_alive()


def test_event_while_handlers_return():
    """It waits no longer than it may."""
    made, end = event.Event(), time.monotonic() + machines.LIMIT

    def handle(*_):
        assert time.monotonic() < end

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        assert not any(made.wait(0.0002) for _ in range(1000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("is_read", [False, True])
def test_ticket_without_its_object(is_read):
    """Another process may have it only if it was read."""
    shared = share.share(BATCH)
    token = shared._offer.token
    ticket = shared.ticket if is_read else None
    del shared
    machines.settle()
    assert (token in owners._owner.by_token) == is_read
    if not is_read:
        return
    with fakes.Opener(ticket) as other:
        assert other.request() == b"\1"
        other.send(b"r")
    machines.eventually(lambda: not owners._owner.by_token)
