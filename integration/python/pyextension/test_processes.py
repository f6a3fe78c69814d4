"""Forks, and the end of a process. Each test runs a program in a process of its own."""

import textwrap
import time

import pytest

import extension
from processes import FINDS, PATIENCE, ended, run


def test_older_python_is_refused(tmp_path):
    """Its signal handlers end a process with Go in it."""
    status, _, err = ended("sys.version_info = (3, 9, 18)\nimport arrowdevice\n", tmp_path, head=FINDS)
    assert status == 1
    assert err.splitlines()[-1].startswith("ImportError: arrowdevice needs Python 3.10 or later, not 3.")


def test_free_threaded_python_is_refused(tmp_path):
    """By the package, so that no library is loaded."""
    status, _, err = ended('sys.abiflags = "t"\nimport arrowdevice\n', tmp_path, head=FINDS)
    assert status == 1
    assert err.splitlines()[-1].startswith("ImportError: arrowdevice needs a Python that is built with the GIL")


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
                print(text.startswith(f"{ext.__file__}: loaded before this process was forked"), 'get_context("spawn"), or "forkserver" after' in text)
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
    program = """
    import multiprocessing

    def work(n):
        return ext.add(n, 1)

    if __name__ == "__main__":
        multiprocessing.set_forkserver_preload([])  # by itself it is this module, which loads the library
        for method in ("spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                print(pool.map(work, range(3)))
    """
    assert ended(program, tmp_path) == (0, "[1, 2, 3]\n" * 2, "")


def test_library_that_only_the_child_loads(tmp_path):
    program = f"""
    import os
    pid = os.fork()
    if pid == 0:
        import arrowdevice
        ext = arrowdevice.load({extension.PATH!r})
        total = sum(ext.add(i, 1) for i in range(1000))
        print(total, flush=True)
        os._exit(0)
    print(os.waitpid(pid, 0)[1])
    """
    assert ended(program, tmp_path, head=FINDS) == (0, "500500\n0\n", "")


def test_fork_by_code_of_an_argument(tmp_path):
    program = """
    import os

    class Forks:
        def __index__(self):
            self.pid = os.fork()
            if self.pid:
                os.waitpid(self.pid, 0)  # the call of the child is over
            return 1

    forks = Forks()
    try:
        print(ext.add(forks, 2), flush=True)
    except RuntimeError as refused:
        print("loaded before this process was forked" in str(refused), flush=True)
    if forks.pid == 0:
        os._exit(0)
    """
    assert run(program, tmp_path) == ["True", "3"]


def test_objects_of_two_libraries(tmp_path):
    """As arguments, and as items of sources."""
    program = f"""
    import shutil
    shutil.copy({extension.PATH!r}, {str(tmp_path / "other.so")!r})
    other = arrowdevice.load({str(tmp_path / "other.so")!r})
    for one, two in ((ext, other), (other, ext)):
        with two.echo_batch(BATCH) as batch:
            print(one.count(batch), one.count([batch, batch]), one.count(b for b in [two.echo_reader(batch)]), len(one.echo([batch, batch["a"]])))
    """
    assert run(program, tmp_path) == ["2 4 2 2"] * 2


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
    begun = time.monotonic()
    status, out, err = ended(textwrap.dedent(ALIVE[name]) + '\nprint("end", flush=True)\n', tmp_path, "-X", "faulthandler")
    assert (status, out) == (0, "end\n"), err
    assert "Fatal" not in err
    assert "panic" not in err
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
    for _ in range(3):
        status, _, err = ended(program, tmp_path, "-X", "faulthandler")
        assert status == 0, err


def test_release_that_waits_for_python(tmp_path):
    program = """
    def batches():
        yield BATCH
        print("read")
        yield BATCH

    made = ext.read_at_release(batches())
    del made
    print("released")
    """
    assert run(program, tmp_path) == ["read", "released"]
