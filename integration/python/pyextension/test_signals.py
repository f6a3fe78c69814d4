"""Signal handlers, and interrupts by them. Each test runs a program in a process of its own."""

import signal
import sys
import threading
import time

import pytest

import extension
from processes import FINDS, LOADS, PATIENCE, STRICT, ended, run, start

HANDLERS = {
    "signal.signal": ("", "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)", "Panic"),
    "before": ("faulthandler.enable()", "", "Panic"),
    "after": ("", "faulthandler.enable()", "the end"),
    "disabled again": ("", "faulthandler.enable(); faulthandler.disable()", "Panic"),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_fault_of_go_with_handlers_of_python(name, tmp_path):
    """The runtime makes a fault of Go code a panic, if its own handler gets it: that of faulthandler must be older."""
    before, after, result = HANDLERS[name]
    program = f"""
    import arrowdevice, faulthandler, signal
    {before}
    ext = arrowdevice.load({extension.PATH!r})
    {after}
    for _ in range(50):
        try:
            ext.dereference_nil()
        except arrowdevice.Panic as panic:
            assert "nil pointer dereference" in str(panic)
    print("Panic")
    """
    status, out, err = ended(program, tmp_path, head=FINDS)
    ends = (-signal.SIGSEGV, -signal.SIGABRT)  # the second if Go's report of the signal fails
    assert (out.strip() or ("the end" if status in ends else status)) == result, err


CALLS = {
    "function": "begun(); ext.sleep(60_000)",
    "reader": "begun(); next(ext.counters(1, 1, 60_000))",
    "read_all": "begun(); ext.counters(1, 1000, 10).read_all()",
    "source": "begun(); ext.count(forever())",
    "sleeping source": "begun(); ext.count(slow())",
    "source of a reader": "ext.echo_reader(late())",
    "asyncio": "asyncio.run(sleep(), debug=False)",  # else it reports callbacks that are slow
}


@pytest.mark.parametrize("name", CALLS)
def test_interrupt_cancels_a_call(name, tmp_path):
    program = f"""
    import asyncio, itertools, time

    def begun():
        print("begun", flush=True)

    async def sleep():  # an event loop that has not begun leaves a coroutine that was never awaited
        begun()
        await ext.sleep.aio(60_000)

    def forever():
        yield from itertools.repeat(BATCH)

    def slow():
        yield BATCH
        time.sleep(1)
        yield BATCH

    def late():
        begun()
        while not stopped and time.monotonic() < start + {PATIENCE}:
            time.sleep(0.01)
        yield BATCH

    stopped, start = [], time.monotonic()
    try:
        {CALLS[name]}
    except KeyboardInterrupt:
        stopped.append(True)
        print("interrupted", flush=True)
    deadline = time.monotonic() + 20
    while True:
        left = {{k: v for k, v in ext._library.ask(".stats").items() if v}}
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.002)
    print(left, ext._library.module.sources())
    print(ext.add(1, 2))
    """
    with start(program, tmp_path, *STRICT) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            time.sleep(0.3)  # until it waits; earlier is right too
            process.send_signal(signal.SIGINT)
            sent = time.monotonic()
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - sent < PATIENCE / 2  # the calls last longer
            rest = process.stdout.read()  # communicate() would miss what is in its buffer
            assert process.stderr.read() == ""
        finally:
            process.kill()
    assert rest.splitlines() == ["{} 0", "3"]


def test_interrupts_at_any_time(tmp_path):
    """An interrupt may come between any two instructions of the package: nothing is lost."""
    program = """
    import gc, itertools, signal, time

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    delays = itertools.cycle([1e-5 * i for i in range(1, 60)])
    deadline = time.monotonic() + 1
    table = pa.table(BATCH)
    batch = ext.echo_batch(BATCH)
    while time.monotonic() < deadline or interrupted <= 100:
        try:
            signal.setitimer(signal.ITIMER_REAL, next(delays))
            ext.add(1, 2)
            ext.echo_batch(BATCH)
            batch["a"]
            ext.count(table)
            batch.slice(1)
            for _ in range(5):
                batch.__arrow_c_device_array__()
            ext.echo_reader([BATCH, BATCH]).read_all()
            ext.sleep(1)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        except BaseException:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise
    signal.setitimer(signal.ITIMER_REAL, 0)
    batch.close()
    gc.collect()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and ext._library.ask(".stats")["calls"]:
        time.sleep(0.01)
    gc.collect()
    stats = ext._library.ask(".stats")
    print(stats["calls"], stats["objects"], ext._library.module.sources())
    """
    assert run(program, tmp_path) == ["0 0 0"]


CONSUMERS = {
    "PyArrow": "pa.table(ext.echo_reader(source())).num_rows",
    "polars": "polars.DataFrame(ext.echo_reader(source())).height",
    "nanoarrow": "sum(map(len, nanoarrow.ArrayStream(ext.echo_reader(source()))))",
}


@pytest.mark.parametrize("base", ("KeyboardInterrupt", "Exception"))
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_interrupts_of_a_consumer(consumer, base, tmp_path):
    """A consumer calls the source in the main thread. An interrupted stream fails and never looks shorter, and the
    interrupt is raised once."""
    program = f"""
    import gc, itertools, nanoarrow, polars, signal, time

    def source():
        for _ in range(50):
            yield BATCH

    class Alarm({base}):
        pass

    raised = received = interrupted = wrong = 0

    def interrupt(*_):
        global raised
        raised += 1
        raise Alarm

    signal.signal(signal.SIGALRM, interrupt)
    delays = itertools.cycle([1e-5 * i for i in range(10, 400, 3)])
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline or received <= 20:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, next(delays))
                wrong += {CONSUMERS[consumer]} != 100
            except Alarm:
                raise
            except Exception as error:
                interrupted += any(text in str(error) for text in ("Alarm", "interrupted by an exception of a signal handler"))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for _ in range(3):
                len(())
        except Alarm:
            received += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    deadline = time.monotonic() + 30
    while gc.collect() or time.monotonic() < deadline and any(ext._library.ask(".stats").values()):
        time.sleep(0.01)
    print(wrong, interrupted <= received, received == raised, ext._library.module.sources(), ext._library.ask(".stats")["objects"])
    """
    assert run(program, tmp_path) == ["0 True True 0 0"]


def test_exception_of_a_handler_while_a_source_is_released(tmp_path):
    """A stream that fails because of a handler releases its source in the main thread, where the exception of the handler
    waits to be raised: it is not one of the source."""
    program = """
    import signal, time

    class Alarm(Exception):
        pass

    def alarm(*_):
        raise Alarm

    def slow():
        for _ in range(100):
            time.sleep(0.02)
            yield BATCH

    signal.signal(signal.SIGALRM, alarm)
    for _ in range(5):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            try:
                pa.RecordBatchReader.from_stream(ext.echo_reader(slow())).read_all()
            except OSError:
                pass
            for _ in range(100):
                len(())
        except Alarm:
            print("raised")
    """
    assert run(program, tmp_path) == ["raised"] * 5


READERS = {
    "waits": "ext.counters(1, 10, 60_000)",
    "takes long": "ext.counters(1, 10_000, 20)",
    "has no end": "ext.counters(1, 1 << 40)",
    "ignores its context": "ext.counters(1, 2, 60_000, True)",
    "of a source": "ext.echo_reader(slow())",
}


def check_interrupt(program, tmp_path, prints):
    """Interrupts a program once it has printed "begun". It must end, after it has printed the lines."""
    with start(program, tmp_path, *STRICT, head=f"{LOADS}\nimport pandas, polars\n") as process:
        try:
            assert process.stdout.readline() == "begun\n"
            time.sleep(0.2)  # until it reads; earlier is right too
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, rest.splitlines()) == (0, prints), err


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("reader", READERS)
def test_interrupt_of_a_consumer_of_a_reader(reader, consumer, tmp_path):
    """A consumer in C runs no signal handlers; the stream that it reads does, and fails. The context of the function
    that made the reader ends."""
    program = f"""
    import nanoarrow, time

    def slow():
        yield BATCH
        print("begun", flush=True)
        time.sleep({PATIENCE * 2})

    failed = None
    try:
        try:
            {'' if reader == "of a source" else 'print("begun", flush=True)'}
            {CONSUMERS[consumer].replace("ext.echo_reader(source())", READERS[reader])}
        except Exception as error:
            failed = error  # a call would raise the interrupt
        while True:
            len(())
    except KeyboardInterrupt:
        print("interrupted", failed is None or "interrupted by an exception of a signal handler" in str(failed), flush=True)
    print(ext.add(1, 2))
    """
    check_interrupt(program, tmp_path, ["interrupted True", "3"])


CATCHES = {
    "to_pyarrow": "READER.to_pyarrow()",
    "the end of to_pyarrow": "table, pa.table = pa.table, lambda _: table(READER); ext.counters(1, 1).to_pyarrow()",
    "to_pandas": "READER.to_pandas()",
    "to_polars": "READER.to_polars()",
    "with": "with READER as reader: pa.table(reader)",
    "batches": "pa.RecordBatchReader.from_batches(READER.schema.to_pyarrow(), (b.to_pyarrow() for b in READER)).read_all()",
}


@pytest.mark.parametrize("reads", CATCHES)
@pytest.mark.parametrize("reader", ["waits", "takes long"])
def test_interrupt_is_raised_where_a_reader_is_read(reader, reads, tmp_path):
    """Code around it catches KeyboardInterrupt alone, and not what the consumer in C raises."""
    program = f"""
    READER = {READERS[reader]}
    READER.schema.to_pyarrow()
    try:
        print("begun", flush=True)
        {CATCHES[reads]}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(ext.add(1, 2))
    """
    check_interrupt(program, tmp_path, ["interrupted", "3"])


# What a library of C does that installs a handler of its own, as polars does for SIGINT: without SA_ONSTACK.
INSTALLS = """
import ctypes, time

class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_uint8 * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]

SA_ONSTACK, NUMBER = 0x08000000, 10
libc = ctypes.CDLL(None)
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None)

def action():
    found = Action()
    assert libc.sigaction(NUMBER, None, ctypes.byref(found)) == 0
    return found

def install():
    plain = Action(ctypes.cast(handler, ctypes.c_void_p).value)
    assert libc.sigaction(NUMBER, ctypes.byref(plain), None) == 0 and not action().flags & SA_ONSTACK
    time.sleep(0.05)  # what has been asked for is not asked again at once
"""
ENTERS = {
    "call": ("", "ext.add(1, 2)"),
    "asyncio": ("import asyncio", "asyncio.run(ext.add.aio(1, 2))"),
    "stream": ("reader = pa.RecordBatchReader.from_stream(ext.counters(1, 10))", "reader.read_next_batch()"),
    "device stream": ("reader = Only(ext.counters(1, 10))", "ext.count(reader)"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the struct is that of Linux")
@pytest.mark.parametrize("name", ENTERS)
def test_handlers_of_others_get_a_stack(name, tmp_path):
    """They would destroy the memory of Go: they run on the stack of a goroutine without it."""
    before, enter = ENTERS[name]
    program = f"""
    class Only:
        def __init__(self, of):
            self.__arrow_c_device_stream__ = of.__arrow_c_device_stream__

    {before}
    install()
    {enter}
    assert action().flags & SA_ONSTACK
    assert action().handler == ctypes.cast(handler, ctypes.c_void_p).value
    print("done")
    """
    assert ended(program, tmp_path, head=LOADS + INSTALLS) == (0, "done\n", "")


def test_interrupts_with_polars_imported_later(tmp_path):
    """Its handler of SIGINT lacks SA_ONSTACK."""
    program = """
    import polars, time

    def work():
        ext.sleep(1)
        ext.add(1, 2)
        ext.count([BATCH] * 10)
        polars.DataFrame(ext.counters(10, 10))
        print("works", flush=True)
        time.sleep(0.001)

    def repeat(depth):  # an interrupt may come between two instructions of a handler, so there is one behind it
        while True:
            try:
                repeat(depth - 1) if depth else work()
            except (KeyboardInterrupt, polars.exceptions.ComputeError):
                pass

    repeat(5)
    """
    with start(program, tmp_path) as process:
        lines = []
        reading = threading.Thread(target=lambda: lines.extend(process.stdout))
        try:
            assert process.stdout.readline() == "works\n"
            reading.start()
            for _ in range(300):
                process.send_signal(signal.SIGINT)
                time.sleep(0.003)
            seen, deadline = len(lines), time.monotonic() + PATIENCE
            while process.poll() is None and len(lines) == seen and time.monotonic() < deadline:
                time.sleep(0.01)
            assert process.poll() is None and len(lines) > seen
        finally:
            process.kill()
            reading.join()
