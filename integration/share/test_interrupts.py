"""Releases by consumers at any time, the limit of recursion, and what the system refuses: nothing is lost, and no struct stays
unreleased."""

import _thread
import ctypes
import errno
import os
import selectors
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import interrupts
import machines
from arrowdevice import share
from arrowdevice.share import cdata, loop, opener, ticket, wire
from arrowdevice.share.schema import Field
from arrowdevice.share.worker import worker


@pytest.fixture
def owner():
    with machines.process("go") as p:
        yield p


def is_released(owner):
    owner.ask("close")
    return owner.ask("wait", 20) == "released"


def calls(structs):
    return [(struct, cdata.RELEASE(struct.release), ctypes.addressof(struct)) for struct in structs]


def test_release_while_signal_handlers_raise():
    """A consumer looks at the struct after the callback, and PyArrow ends the process if it is not released."""
    worker.run(loop.loop.start)
    left = []

    def finish():
        for struct, release, address in left:
            while struct.release:
                release(address)
                assert not struct.release

    def release_many():
        if not left:
            left.extend(calls([cdata.export_schema(Field("i")) for _ in range(100)]))
        finish()
        left.clear()

    interrupts.at_random(interrupts.Alarms(), 200, release_many, lambda code: code is finish.__code__)
    finish()
    machines.eventually(lambda: cdata.exported() == 0)


def test_release_near_the_limit_of_recursion():
    """However deep the fields are nested."""
    worker.run(loop.loop.start)
    field = Field("i")
    for _ in range(30):
        field = Field("+s", children=[field])
    ((struct, release, address),) = calls([cdata.export_schema(field)])

    def descend():
        try:
            above = descend() + 1
        except RecursionError:
            return 0
        if above == 20:
            release(address)
        return above

    descend()
    assert not struct.release
    machines.eventually(lambda: cdata.exported() == 0)


def test_release_while_an_exception_is_raised(owner):
    """The exception is kept, and the process goes on."""
    with share.open(owner.share("struct_dictionary")) as batch:
        for _ in range(100):
            with pytest.raises(ZeroDivisionError):
                print([pa.table(batch), 1 / 0])  # drops the table
    assert is_released(owner)
    machines.eventually(lambda: cdata.exported() == 0)


def test_release_after_the_end_of_python(owner):
    """By a function of C's atexit."""
    program = """
import ctypes, sys
from arrowdevice import share
from arrowdevice.share import cdata
batch = share.open(bytes.fromhex(sys.argv[1]))
_, array = batch.__arrow_c_array__()
get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
address = get(array, b"arrow_array")
ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
release = cdata.ArrowArray.from_address(address).release
libc = ctypes.CDLL(None)
libc.__cxa_atexit.argtypes = [ctypes.c_void_p] * 3
libc.__cxa_atexit(release, address, None)
"""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    out = subprocess.run([sys.executable, "-c", program, owner.share("int32").hex()], capture_output=True, text=True, timeout=60, env=env)
    assert (out.returncode, out.stderr) == (0, "")
    assert is_released(owner)


def test_signal_to_the_thread_that_collects():
    """It goes on."""
    worker.run(loop.loop.start)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        for _ in range(3):
            signal.pthread_kill(loop.loop._collector, signal.SIGUSR1)
            cdata.release(cdata.export_schema(Field("i")))
            machines.eventually(lambda: cdata.exported() == 0)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("protocol", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_close_during_an_export(owner, monkeypatch, protocol):
    """By another thread, for example: what was exported before is released."""
    batch = share.open(owner.share("struct_dictionary"))
    schema = share.RecordBatch.__arrow_c_schema__

    def closing(self):
        self.close()
        return schema(self)

    monkeypatch.setattr(share.RecordBatch, "__arrow_c_schema__", closing)
    with pytest.raises(ValueError, match="was closed"):
        getattr(batch, protocol)()
    assert is_released(owner)
    machines.eventually(lambda: cdata.exported() == 0)


def test_export_while_the_last_holder_ends(owner):
    """On another thread, between any two of its steps: the memory stays as long as the export needs it."""
    batch = share.open(owner.share("int32"))
    opened = batch._opened

    class Holders(set):
        def __len__(self):
            size = super().__len__()
            if not size and late:
                opened.retain(late.pop())
            return size

        def __bool__(self):
            return len(self) > 0

    late, opened._holders = ["late"], Holders(opened._holders)
    batch.close()
    assert opened.mappings
    with pytest.raises(ValueError, match="was closed"):
        opened.retain("later")
    opened.release("late")
    assert not opened.mappings
    assert is_released(owner)


@pytest.mark.parametrize("after", range(1, 8))
def test_export_that_fails(owner, monkeypatch, after):
    """Whichever struct it fails at, those before are released."""
    batch = share.open(owner.share("struct_dictionary"))
    retain = failing_once(opener._Opened.retain, ValueError("no more"), after)
    with monkeypatch.context() as patch:
        patch.setattr(opener._Opened, "retain", lambda self, key: retain(self, key))
        with pytest.raises(ValueError, match="no more"):
            batch.__arrow_c_array__()
    batch.close()
    assert is_released(owner)
    machines.eventually(lambda: cdata.exported() == 0)


def failing_once(function, error, after=0):
    left = [None] * after + [error]

    def call(*arguments, **keywords):
        if left and left[0]:
            raise left.pop(0)
        if left:
            left.pop(0)
        return function(*arguments, **keywords)

    return call


@pytest.mark.parametrize(
    ("where", "what"), [(os, "eventfd"), (selectors, "DefaultSelector"), (_thread, "start_new_thread")], ids=lambda x: str(x)
)
def test_threads_that_do_not_start(monkeypatch, where, what):
    """The next call starts them."""
    machines.settle()
    made, files, called = loop.Loop(), len(os.listdir("/proc/self/fd")), threading.Event()
    monkeypatch.setattr(where, what, failing_once(getattr(where, what), OSError(errno.EMFILE, "none is left")))
    with pytest.raises(OSError, match="none is left"):
        made.start()
    if where is _thread:  # that was the first thread; now the second
        monkeypatch.setattr(where, what, failing_once(_thread.start_new_thread, OSError(errno.EMFILE, "none is left"), after=1))
        with pytest.raises(OSError, match="none is left"):
            made.start()
    assert len(os.listdir("/proc/self/fd")) == files
    made.start()
    made.call(called.set)
    assert called.wait(machines.LIMIT)


@pytest.mark.parametrize("function", ["start", "call"])
def test_open_that_the_loop_refuses(owner, monkeypatch, function):
    """The ticket can be opened again."""
    issued = owner.share("int32")
    machines.settle()
    files, maps = len(os.listdir("/proc/self/fd")), memory_maps()
    with monkeypatch.context() as patch:
        patch.setattr(opener.loop, function, failing_once(getattr(opener.loop, function), OSError(errno.EMFILE, "none is left")))
        with pytest.raises(OSError, match="none is left"):
            share.open(issued)
    machines.eventually(lambda: len(os.listdir("/proc/self/fd")) <= files)
    assert memory_maps() == maps
    machines.eventually(lambda: owner.ask("openers") == "0")
    share.open(issued).close()
    assert is_released(owner)


def memory_maps():
    with open("/proc/self/maps") as file:
        return file.read().count("memfd:arrowdevice")


# Of 3 bytes for each of a million fields.
LARGE = ticket.seal(b"\x08\x01" + b"\x9a\x06\x00" * 1_000_000)


def test_decoding_ends_in_time():
    with wire.until(0), pytest.raises(TimeoutError, match="too large to be decoded"):
        ticket.Ticket.decode(LARGE)
    with wire.until(0), pytest.raises(TimeoutError, match="too large to be decoded"):
        list(wire.numbers(bytes(5000)))
    decoded = ticket.Ticket.decode(LARGE)
    with wire.until(0), pytest.raises(TimeoutError, match="too large to be decoded"):
        decoded.decode_rest()
    with pytest.raises(TimeoutError, match="too large to be decoded"):
        share.open(LARGE, timeout=0.01)


def test_decoding_the_rest_ends_in_time(owner, monkeypatch):
    """The owner is told, and the ticket can be opened again."""
    issued = owner.share("int32")

    def rest(self):
        while True:
            ticket.Ticket.decode(LARGE)

    with monkeypatch.context() as patch:
        patch.setattr(ticket.Ticket, "decode_rest", rest)
        with pytest.raises(TimeoutError, match="too large to be decoded"):
            share.open(issued, timeout=2)
    machines.eventually(lambda: owner.ask("openers") == "0")
    share.open(issued).close()
    assert is_released(owner)


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ((5,), TypeError, "ticket = int"),
        (("text",), TypeError, "ticket = str"),
        ((b"", "1"), TypeError, "timeout = str"),
        ((b"", float("nan")), ValueError, "timeout = nan"),
        ((b"", float("inf")), ValueError, "timeout = inf"),
        ((b"", 1e10), ValueError, "timeout = 1"),
        ((b"", 1, 5), TypeError, "owner_gone = int"),
    ],
)
def test_arguments_of_open(arguments, error, names):
    keywords = dict(zip(("timeout", "owner_gone"), arguments[1:]))
    with pytest.raises(error, match=names):
        share.open(arguments[0], **keywords)


def test_subinterpreters():
    """Their daemon threads would end the process at their end."""
    program = """
import os
try:
    import _interpreters as interpreters
    made = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    made = interpreters.create(isolated=False)
interpreters.run_string(made, '''
import os
from arrowdevice import share
for call in (share.open, share.share):
    try:
        call(b"")
    except share.NotSupported as error:
        os.write(1, str(error).encode())
''')
"""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert out.returncode == 0 and out.stdout.count("in a subinterpreter") == 2, out
