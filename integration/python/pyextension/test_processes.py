"""Interrupts, forks, and the end of a process. Each test runs a program in a process of its own."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

import extension

PATIENCE = 120  # seconds until a process counts as hanging

PREAMBLE = """
import sys
sys.path[:0] = [{package!r}]
import arrowdevice
import pyarrow as pa
ext = arrowdevice.load({path!r})
BATCH = pa.record_batch({{"a": [1, 2]}})
"""


def start(program, tmp_path):
    """A process that runs a program, with standard output as text."""
    path = tmp_path / "program.py"
    path.write_text(PREAMBLE.format(package=extension.PACKAGE, path=extension.PATH) + textwrap.dedent(program))
    command = [sys.executable, "-X", "faulthandler", "-X", "dev", "-W", "ignore::DeprecationWarning", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(program, tmp_path, returns=0):
    """The output of a program that ends by itself and writes nothing to standard error."""
    process = start(program, tmp_path)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, err) == (returns, "")
    return out.splitlines()


def test_older_python_is_refused(tmp_path):
    """Its signal handlers end a process with Go in it."""
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.path[:0] = [{extension.PACKAGE!r}]\nsys.version_info = (3, 9, 18)\nimport arrowdevice\n")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("ImportError: arrowdevice needs Python 3.10 or later, not 3.")


HANDLERS = {
    "signal.signal": ("", "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)", "Panic"),
    "before": ("faulthandler.enable()", "", "Panic"),
    "after": ("", "faulthandler.enable()", -signal.SIGSEGV),
    "disabled again": ("", "faulthandler.enable(); faulthandler.disable()", "Panic"),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_fault_of_go_with_handlers_of_python(name, tmp_path):
    """The runtime makes a fault of Go code a panic, if its own handler gets it: that of faulthandler must be older."""
    before, after, result = HANDLERS[name]
    program = f"""
    import faulthandler, signal
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
    path = tmp_path / "program.py"
    path.write_text(f"import sys\nsys.path[:0] = [{extension.PACKAGE!r}]\nimport arrowdevice\n" + textwrap.dedent(program))
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=PATIENCE)
    ended = ran.stdout.strip() or ran.returncode
    assert ended == result, ran.stderr


CALLS = {
    "function": "ext.sleep(60_000)",
    "reader": "next(ext.counters(1, 1, 60_000))",
    "read_all": "ext.counters(1, 1000, 10).read_all()",
    "source": "ext.count(forever())",
    "sleeping source": "ext.count(slow())",
    "asyncio": "asyncio.run(ext.sleep.aio(60_000))",
}


@pytest.mark.parametrize("name", CALLS)
def test_interrupt_cancels_a_call(name, tmp_path):
    program = f"""
    import asyncio, itertools, time

    def forever():
        yield from itertools.repeat(BATCH)

    def slow():
        yield BATCH
        time.sleep(1)
        yield BATCH

    try:
        print("begun", flush=True)
        {CALLS[name]}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    deadline = time.monotonic() + 20
    while True:
        left = {{k: v for k, v in ext._library.ask(".stats").items() if v}}
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.002)
    print(left, ext._library.running, arrowdevice._sources.alive())
    print(ext.add(1, 2))
    """
    with start(program, tmp_path) as process:
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
    assert rest.splitlines() == ["{} set() 0", "3"]


def test_interrupts_at_any_time(tmp_path):
    """An interrupt may come between any two instructions of the package: nothing is lost."""
    program = """
    import gc, itertools, signal, time

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    delays = itertools.cycle([1e-5 * i for i in range(1, 60)])
    deadline = time.monotonic() + 4
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
    print(stats["calls"], len(ext._library.running), stats["objects"], arrowdevice._sources.alive())
    """
    assert run(program, tmp_path) == ["0 0 0 0"]


CONSUMERS = {
    "PyArrow": "pa.table(ext.echo_reader(source())).num_rows",
    "polars": "polars.DataFrame(ext.echo_reader(source())).height",
    "nanoarrow": "sum(map(len, nanoarrow.ArrayStream(ext.echo_reader(source()))))",
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_interrupts_of_a_consumer(consumer, tmp_path):
    """A consumer calls the source in the main thread. An interrupted stream fails and never looks shorter, and the
    interrupt is raised once."""
    program = f"""
    import gc, itertools, nanoarrow, polars, signal, time

    def source():
        for _ in range(50):
            yield BATCH

    raised = received = interrupted = wrong = 0

    def interrupt(*_):
        global raised
        raised += 1
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    delays = itertools.cycle([1e-5 * i for i in range(10, 400, 3)])
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline or received <= 20:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, next(delays))
                wrong += {CONSUMERS[consumer]} != 100
            except Exception as error:
                interrupted += any(text in str(error) for text in ("KeyboardInterrupt", "interrupted by an exception of a signal handler"))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for _ in range(3):
                len(())
        except KeyboardInterrupt:
            received += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    deadline = time.monotonic() + 30
    while gc.collect() or time.monotonic() < deadline and any(ext._library.ask(".stats").values()):
        time.sleep(0.01)
    print(wrong, interrupted <= received, received == raised, arrowdevice._sources.alive(), ext._library.ask(".stats")["objects"])
    """
    assert run(program, tmp_path) == ["0 True True 0 0"]


READERS = {
    "waits": "ext.counters(1, 10, 60_000)",
    "takes long": "ext.counters(1, 10_000, 20)",
    "has no end": "ext.counters(1, 1 << 40)",
    "ignores its context": "ext.counters(1, 2, 60_000, True)",
    "of a source": "ext.echo_reader(slow())",
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("reader", READERS)
def test_interrupt_of_a_consumer_of_a_reader(reader, consumer, tmp_path):
    """A consumer in C runs no signal handlers; the stream that it reads does, and fails. The context of the function
    that made the reader ends."""
    program = f"""
    import nanoarrow, polars, time

    def slow():
        yield BATCH
        print("begun", flush=True)
        time.sleep({PATIENCE * 2})

    try:
        try:
            {'' if reader == "of a source" else 'print("begun", flush=True)'}
            {CONSUMERS[consumer].replace("ext.echo_reader(source())", READERS[reader])}
        except Exception as error:
            print("interrupted by an exception of a signal handler" in str(error))
        while True:
            len(())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(ext.add(1, 2))
    """
    with start(program, tmp_path) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            time.sleep(0.2)  # until it reads; earlier is right too
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert rest.splitlines()[-2:] == ["interrupted", "3"]
    assert rest.splitlines()[:-2] in ([], ["True"])
    assert process.returncode == 0


def test_forked_child_gets_an_error(tmp_path):
    program = """
    import gc, os

    batch = ext.echo_batch(BATCH)
    array = batch["a"]
    reader = ext.echo_reader(BATCH for _ in range(3))
    device = batch.__arrow_c_device_array__()
    stream = ext.echo_reader(BATCH).__arrow_c_stream__()
    table = ext.echo_batch(BATCH).to_pyarrow()
    pid = os.fork()
    if pid == 0:
        for use in (
            lambda: ext.add(1, 2),
            lambda: next(reader),
            lambda: batch["a"],
            lambda: pa.table(batch),
            lambda: arrowdevice.load(ext.__file__),
        ):
            try:
                use()
                print("no error")
            except RuntimeError as refused:
                text = str(refused)
                print(text.startswith(f"{ext.__file__}: loaded before this process was forked"), 'get_context("spawn") or "forkserver"' in text)
        assert table.to_pylist() == BATCH.to_pylist()
        del batch, array, reader, device, stream, table
        gc.collect()
        sys.stdout.flush()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    print(status, ext.add(1, 2), next(reader).num_rows)
    """
    assert run(program, tmp_path) == ["True True"] * 5 + ["0 3 2"]


def test_children_of_multiprocessing(tmp_path):
    program = tmp_path / "children.py"
    program.write_text(
        PREAMBLE.format(package=extension.PACKAGE, path=extension.PATH)
        + textwrap.dedent("""
        import multiprocessing

        def work(n):
            return ext.add(n, 1)

        if __name__ == "__main__":
            for method in ("spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    print(pool.map(work, range(3)))
        """)
    )
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["[1, 2, 3]"] * 2


def test_library_that_only_the_child_loads(tmp_path):
    path = tmp_path / "program.py"
    program = """
    import os
    pid = os.fork()
    if pid == 0:
        import arrowdevice
        ext = arrowdevice.load(sys.argv[1])
        total = sum(ext.add(i, 1) for i in range(1000))
        print(total, flush=True)
        os._exit(0)
    print(os.waitpid(pid, 0)[1])
    """
    path.write_text(f"import sys\nsys.path[:0] = [{extension.PACKAGE!r}]\n" + textwrap.dedent(program))
    ran = subprocess.run([sys.executable, path, extension.PATH], capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.stdout, ran.stderr) == ("500500\n0\n", "")


def test_subinterpreters_are_refused(tmp_path):
    """ctypes runs callbacks of foreign threads in the main interpreter, whose objects are others."""
    inner = tmp_path / "inner.py"
    inner.write_text(
        f"import sys\nsys.path[:0] = [{extension.PACKAGE!r}]\n"
        f"try:\n    import arrowdevice\n    arrowdevice.load({extension.PATH!r})\nexcept ImportError as e:\n    print(e, flush=True)\n"
    )
    program = f"""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    import pathlib
    made = interpreters.create()
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    run(made, pathlib.Path({str(inner)!r}).read_text())
    interpreters.destroy(made)
    print(ext.add(1, 2))
    """
    refused, works = run(program, tmp_path)
    assert refused.endswith("cannot be loaded in a subinterpreter") or "does not support loading in subinterpreters" in refused
    assert works == "3"


# The end of a process, with everything alive.

ALIVE = {
    "objects": """
    kept = [ext.echo_batch(BATCH), ext.echo_reader(BATCH), ext.echo_array(BATCH["a"]), ext.counters(1, 10, 1)]
    kept += [next(kept[3]), ext.echo_batch(BATCH).schema]
    """,
    "objects in a cycle": """
    kept = [ext.echo_batch(BATCH)]
    kept.append(kept)
    sys.kept = kept
    """,
    "capsules": """
    batch = ext.echo_batch(BATCH)
    sys.kept = [batch.__arrow_c_device_array__(), batch.__arrow_c_array__(), batch["a"].__dlpack__()]
    sys.kept += [ext.echo_reader(BATCH).__arrow_c_stream__(), ext.counters(1, 9).__arrow_c_device_stream__()]
    """,
    "tables of PyArrow": """
    sys.kept = [pa.table(ext.echo_reader([BATCH] * 3)), pa.RecordBatchReader.from_stream(ext.counters(1, 10))]
    """,
    "a source": """
    sys.kept = ext.echo_reader(BATCH for _ in range(10))
    next(sys.kept)
    """,
    "a source behind a capsule": """
    sys.kept = ext.echo_reader(BATCH for _ in range(10)).__arrow_c_stream__()
    """,
    "a source behind PyArrow": """
    sys.kept = pa.RecordBatchReader.from_stream(ext.echo_reader(BATCH for _ in range(10)))
    sys.kept.read_next_batch()
    """,
    "memory of Python behind PyArrow": """
    import numpy
    sys.kept = ext.echo_array(numpy.arange(1000)).to_pyarrow()
    """,
    "a daemon thread in a call": """
    import threading, time
    threading.Thread(target=ext.sleep, args=(60_000,), daemon=True).start()
    time.sleep(0.1)
    """,
    "daemon threads in many calls": """
    import threading, time
    def work():
        while True:
            ext.count(BATCH for _ in range(10))
    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    """,
    "a daemon thread that reads a slow source": """
    import threading, time
    def slow():
        while True:
            yield BATCH
            time.sleep(0.01)
    threading.Thread(target=ext.count, args=(slow(),), daemon=True).start()
    time.sleep(0.1)
    """,
    "a pending task": """
    import asyncio
    loop = asyncio.new_event_loop()
    task = loop.create_task(ext.sleep.aio(60_000))
    task._log_destroy_pending = False
    loop.run_until_complete(asyncio.sleep(0.05))
    sys.kept = [task, loop]
    """,
}


@pytest.mark.parametrize("name", ALIVE)
def test_end_of_a_process(name, tmp_path):
    program = textwrap.dedent(ALIVE[name]) + '\nprint("end", flush=True)\n'
    path = tmp_path / "program.py"
    path.write_text(PREAMBLE.format(package=extension.PACKAGE, path=extension.PATH) + program)
    begun = time.monotonic()
    ran = subprocess.run([sys.executable, "-X", "faulthandler", path], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.stdout == "end\n"
    assert ran.returncode == 0, ran.stderr
    assert "Fatal" not in ran.stderr
    assert "panic" not in ran.stderr
    assert time.monotonic() - begun < PATIENCE / 2


def test_end_of_a_process_often(tmp_path):
    """The end races with goroutines."""
    program = """
    import threading
    def work():
        while True:
            ext.count(BATCH for _ in range(3))
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    sys.kept = [ext.echo_reader(BATCH for _ in range(10)), pa.RecordBatchReader.from_stream(ext.counters(1, 10, 1))]
    """
    path = tmp_path / "program.py"
    path.write_text(PREAMBLE.format(package=extension.PACKAGE, path=extension.PATH) + textwrap.dedent(program))
    for _ in range(8):
        ran = subprocess.run([sys.executable, "-X", "faulthandler", path], capture_output=True, text=True, timeout=PATIENCE)
        assert ran.returncode == 0, ran.stderr

