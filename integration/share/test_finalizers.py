"""Finalizers of what programs hand over: no call of the package waits for one, whatever lock it takes."""

import _thread
import functools
import itertools
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

import interrupts
import machines
from arrowdevice import share
from arrowdevice.share.loop import loop
from arrowdevice.share.worker import Worker, worker


def batch(end):
    """A batch that calls a function once its memory ends. A column that share() does not copy has the batch retained."""
    memory, allocated = np.zeros(10, np.int64), share.allocate(80)
    holder = type("Holder", (), {"memory": memory, "__del__": staticmethod(end)})()
    buffers = pa.foreign_buffer(memory.ctypes.data, 80, holder), pa.py_buffer(allocated)
    return pa.record_batch([pa.Array.from_buffers(pa.int64(), 10, [None, each]) for each in buffers], ["foreign", "allocated"])


class Gate:
    """Threads that pass it wait until it is opened."""

    def __init__(self):
        self.reached, self._open = threading.Event(), threading.Event()

    def __call__(self):
        self.reached.set()
        self._open.wait(2 * machines.LIMIT)

    def open(self):
        self._open.set()

    def is_open(self):
        return self._open.is_set()


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


def on_a_thread(*functions):
    """Calls functions on a thread, in a bounded time."""
    done = threading.Event()

    def call():
        for function in functions:
            function()
        done.set()

    threading.Thread(target=call, daemon=True).start()
    assert done.wait(machines.LIMIT)


def share_and_wait():
    with share.share(pa.record_batch({"n": [1]})) as shared:
        assert shared.ticket
    shared.wait(machines.LIMIT)


def test_close_while_a_finalizer_waits(gate):
    """All calls go on; wait() returns once the data are released."""
    shared = share.share(batch(gate))
    on_a_thread(shared.close, lambda: share.allocate(10), share_and_wait)
    assert gate.reached.wait(machines.LIMIT)
    with pytest.raises(TimeoutError, match="until the producer of the data releases them"):
        shared.wait(0.001)
    gate.open()
    shared.wait(machines.LIMIT)


def test_openers_while_a_finalizer_waits(gate):
    """Those of this process's batches, and its own batches of another one."""
    with machines.process("python") as other:
        first, second = (share.share(data, openers=2) for data in (batch(gate), pa.record_batch({"n": [1]})))
        other.open(first.ticket)
        first.close()
        other.ask("release")
        assert gate.reached.wait(machines.LIMIT)
        other.open(second.ticket)
        machines.eventually(lambda: second.openers == 1)
        other.ask("release")
        on_a_thread(second.close)
        second.wait(machines.LIMIT)
        mine = share.open(other.share())
        on_a_thread(lambda: pa.record_batch(mine), mine.close)
        assert other.ask("wait", machines.LIMIT) == "released"
    gate.open()
    first.wait(machines.LIMIT)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_a_finalizer_waits(gate):
    """The child releases its copies of what the parent has not come to."""
    freed = []
    first, second = (share.share(batch(end)) for end in (gate, lambda: freed.append(1)))
    first.close()
    assert gate.reached.wait(machines.LIMIT)
    second.close()
    pid = os.fork()
    if pid == 0:
        is_released = False
        try:
            signal.alarm(machines.LIMIT)
            share_and_wait()
            second.wait(machines.LIMIT)
            is_released = freed == [1]
        finally:
            os._exit(0 if is_released else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not freed
    gate.open()
    second.wait(machines.LIMIT)
    assert freed == [1]


def test_finalizer_of_owner_gone(gate):
    """Also of one that was not called."""

    class Gone:
        def __call__(self):
            pass

        def __del__(self):
            gate()

    with machines.process("go") as other:
        opened = share.open(other.share(), owner_gone=Gone())
        on_a_thread(opened.close)
        assert gate.reached.wait(machines.LIMIT)
        on_a_thread(share_and_wait)
        assert other.ask("wait", machines.LIMIT) == "released"
        done = threading.Event()
        worker.run(loop.call, done.set)
        assert done.wait(machines.LIMIT)


EXIT = """
import os, threading
import pyarrow as pa
from arrowdevice import share
from arrowdevice.share import worker
from test_finalizers import batch
entered = threading.Event()

def end():
    entered.set()
    {end}
    os.write(1, b"released")

shared = share.share(batch(end))
shared.close()
entered.wait()
{last}
"""


@pytest.mark.parametrize(
    ("end", "last", "want"),
    [
        ("threading.Event().wait(0.1)", "", "released"),
        ("threading.Event().wait()", "worker._LAST = 0.1", ""),
        ("", "shared = share.share(batch(end)); __import__('atexit').register(shared.close)", "releasedreleased"),
    ],
    ids=["that returns", "that waits for ever", "of an exit handler"],
)
def test_end_of_python_in_a_finalizer(end, last, want):
    """A thread that Python ends in a function of C++ would end the process by a signal."""
    command = [sys.executable, "-W", "error", "-c", EXIT.format(end=end, last=last)]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert (out.returncode, out.stdout, out.stderr) == (0, want, "")


def test_close_after_the_releaser():
    """By an exit handler that was registered before the package was imported: wait() returns."""
    program = """
import atexit
def end():
    shared.close()
    shared.wait()
    print("released")
atexit.register(end)
from arrowdevice import share
from test_finalizers import batch
shared = share.share(batch(int))
"""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    out = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert (out.returncode, out.stdout, out.stderr) == (0, "released\n", "")


def test_number_of_openers_that_is_an_object():
    """Code of the program does not run each time that an opener comes."""

    class Two:
        def __index__(self):
            return 2

    with share.share(pa.record_batch({"n": [1]}), openers=Two()) as shared:
        assert type(shared._offer.left) is int and shared._offer.left == 2


class Threads:
    """Those that a function was called on. It runs no Python code of its own, which a handler could end."""

    def __init__(self):
        self.all = []

    def record(self):
        """A function that can be called once."""
        return functools.partial(self.all.extend, itertools.starmap(_thread.get_ident, [()]))


class Capsules:
    """What an object exports once."""

    def __init__(self, *capsules):
        self.capsules = capsules

    def __arrow_c_array__(self, requested_schema=None):
        capsules, self.capsules = self.capsules, None
        return capsules


def interrupted(gate, function):
    """Calls a function, and raises an exception while it waits for the worker, which then has the last references to its arguments."""

    def handle(_, frame):
        if frame.f_code is Worker.run.__code__:
            raise interrupts.Interrupted
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, handle)
    worker.request(gate)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        function()
    except interrupts.Interrupted:
        gate.open()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert gate.is_open()
    machines.settle()


@pytest.mark.parametrize("is_refused", [False, True])
def test_interrupted_share(gate, is_refused):
    """The data do not end on the worker, also if the destructor of a capsule releases them: here that of one in the wrong place."""
    threads = Threads()
    schema, array = batch(threads.record()).__arrow_c_array__()
    data = Capsules(array if is_refused else schema, array)
    del schema, array
    interrupted(gate, lambda: share.share(data))
    assert len(threads.all) == 1 and worker._thread not in threads.all


@pytest.mark.parametrize("is_refused", [False, True])
def test_interrupted_open(gate, is_refused):
    """Nor does the function that is called if the owner exits: here one of another process, or this one, which is refused."""
    threads = Threads()
    gone = type("Gone", (), {"__call__": lambda _: None, "__del__": staticmethod(threads.record())})
    with machines.process("go") as other, share.share(pa.record_batch({"n": [1]})) as mine:
        ticket = mine.ticket if is_refused else other.share()
        interrupted(gate, lambda: share.open(ticket, owner_gone=gone()))
    assert len(threads.all) == 1 and worker._thread not in threads.all and loop._thread not in threads.all
