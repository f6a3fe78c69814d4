"""What Python's own objects do: the PyCapsule interface, the ends of processes, and where data are not copied."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

import abi
import fakes
import machines
from arrowdevice import share
from arrowdevice.share import cdata, memory


@pytest.fixture(scope="module")
def other():
    """An owner in another process."""
    with machines.process("go") as p:
        yield p


@pytest.fixture
def batch(other):
    ticket = other.share("struct_dictionary")
    yield share.open(ticket)
    gc.collect()
    assert other.ask("wait", 20) == "released"
    machines.eventually(lambda: cdata.exported() == 0, "each struct is released")


def is_released(other):
    try:
        return other.ask("wait", 0) == "released"
    except machines.Refused:
        return False


def test_object(batch):
    assert (len(batch), batch.num_rows, batch.names, batch.device) == (5, 5, ["a", "b"], "cpu")
    assert repr(batch) == "<arrowdevice.share.RecordBatch: 5 rows of a, b on cpu>"
    with batch as entered:
        assert entered is batch and not batch.closed
    assert batch.closed
    assert repr(batch) == "<arrowdevice.share.RecordBatch: closed>"
    batch.close()
    for protocol in (batch.__arrow_c_schema__, batch.__arrow_c_array__, batch.__arrow_c_device_array__):
        with pytest.raises(ValueError, match="was closed"):
            protocol()
    with pytest.raises(TypeError, match="cannot be pickled"):
        batch.__reduce__()


def test_exports_keep_the_memory(batch, other):
    table = pa.table(batch)
    column = table["a"].combine_chunks()
    batch.close()
    want = table.to_pylist()
    del table
    assert not is_released(other)
    assert [row["a"] for row in want] == column.to_pylist()
    del column


def test_device_array(batch):
    schema, array = batch.__arrow_c_device_array__()
    device = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(array, "arrow_device_array"))
    assert (device.device_type, device.device_id, device.sync_event) == (abi.CPU, -1, None)
    got = pa.RecordBatch._import_from_c_device_capsule(schema, array)
    assert got.equals(pa.record_batch(batch))
    batch.close()


def test_requested_schema(batch):
    table = pa.table(batch)
    for wanted in (table.schema, pa.schema([("x", pa.int8()), ("y", pa.int8())])):
        schema, _ = batch.__arrow_c_array__(wanted.__arrow_c_schema__())
        assert pa.schema(_Schema(schema)) == table.schema, "the consumer casts"
    with pytest.raises(ValueError, match="requested_schema has 1 fields, not 2"):
        batch.__arrow_c_array__(pa.schema([("x", pa.int8())]).__arrow_c_schema__())
    with pytest.raises(NotImplementedError, match="later"):
        batch.__arrow_c_array__(None, later=1)
    batch.__arrow_c_array__(None, later=None)
    batch.close()


class _Schema:
    def __init__(self, capsule):
        self.capsule = capsule

    def __arrow_c_schema__(self):
        return self.capsule


def test_capsules_that_nobody_takes(batch, other):
    """They keep the memory, and release it soon after they are gone."""
    capsules = batch.__arrow_c_array__(), batch.__arrow_c_device_array__(), batch.__arrow_c_schema__()
    batch.close()
    assert not is_released(other)
    gc.collect()
    assert not is_released(other)
    del capsules
    machines.eventually(lambda: is_released(other))


def test_failing_consumers_raise_their_own_error(batch):
    """A destructor in Python would replace it."""
    with pytest.raises(TypeError, match="int"):
        int(batch.__arrow_c_array__())
    with pytest.raises(TypeError):
        pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__(), 1)
    batch.close()


def test_children_that_are_moved_out(batch, other):
    """A consumer may keep one child and release its parent."""
    capsule = batch.__arrow_c_array__()[1]
    root = abi.ArrowArray.from_address(abi.capsule_pointer(capsule, "arrow_array"))
    child = abi.ArrowArray.from_buffer_copy(root.children[1].contents)
    root.children[1].contents.release = None
    del capsule
    batch.close()
    machines.eventually(lambda: cdata.exported() == 3, "only the child, its child and the dictionary are left")
    assert not is_released(other)
    abi.release(child)
    assert child.release is None


def test_release_on_a_thread_without_python(batch):
    """As threads of consumers are."""
    capsule = batch.__arrow_c_array__()[1]
    source = abi.capsule_pointer(capsule, "arrow_array")
    array = abi.ArrowArray.from_buffer_copy(abi.ArrowArray.from_address(source))
    abi.ArrowArray.from_address(source).release = None
    batch.close()
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(array.release), ctypes.byref(array)) == 0
    assert libc.pthread_join(thread, None) == 0
    assert array.release is None


def test_threads(other):
    """Many threads take and drop the same batch."""
    batch = share.open(other.share("utf8"))
    want = pa.record_batch(batch)

    different = []

    def take(want=want):
        for _ in range(100):
            if not pa.record_batch(batch).equals(want):
                different.append(batch)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different
    batch.close()
    del want, take, threads, thread
    assert other.ask("wait", 20) == "released"


@pytest.mark.parametrize("end", ["", "os._exit(0)", "del batch", "batch.close()", "keep.append(keep)", "sys.exit(0)", "__import__('builtins').kept = keep"])
def test_exits(other, end):
    """A process may end with anything open. What is alive then is left to the end of the process."""
    program = f"""
import os, sys
import pyarrow as pa
from arrowdevice import share
batch = share.open(bytes.fromhex(sys.argv[1]), owner_gone=print)
keep = [pa.table(batch), batch.__arrow_c_array__()]
{end}
"""
    run(program, other.share("struct_dictionary").hex())
    assert other.ask("wait", 20) == "released"


def run(program, *arguments):
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_interrupted_opening(other):
    """Ctrl-C ends an opening, and the owner is told."""
    with fakes.owner(reply=b"") as owner:
        ticket = owner.ticket(other.share())
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            share.open(ticket)
        timer.join()
        machines.eventually(lambda: owner.last)
        assert owner.last == [b"f"]
    other.ask("close")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_children(other):
    """A child has the parent's memory, tells its owner nothing, and is a process of its own."""
    batch = share.open(other.share("utf8"))
    table = pa.table(batch)
    with share.share(table) as mine:
        pid = os.fork()
        if pid == 0:
            ok = table.num_rows == len(batch)
            try:
                share.open(mine.ticket, timeout=10).close()  # its parent is another process
                batch.close()
                del table
                with share.share(pa.table({"a": [1]})) as own:
                    with fakes.Opener(own.ticket) as opener:
                        ok = ok and own.openers == 0 and opener.request() == b"\1"
                        opener.send(b"r")
                        own.wait(10)
            except BaseException:
                ok = False
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0
        mine.wait(20)
    assert not is_released(other)
    batch.close()
    del table
    assert other.ask("wait", 20) == "released"


def test_owner_gone_is_called_once():
    called = threading.Semaphore(0)
    owner = machines.Process("python")
    batch = share.open(owner.share(), owner_gone=called.release)
    owner.kill()
    owner.process.stdin.close()
    owner.process.stdout.close()
    assert called.acquire(timeout=20)
    batch.close()
    assert not called.acquire(timeout=0.05)


# share()


@pytest.fixture(scope="module")
def reader():
    with machines.process("go") as p:
        yield p


def contents(ticket):
    return fakes.content(ticket)


def test_memory_of_allocate_is_not_copied(reader):
    numbers = np.frombuffer(share.allocate(8 * 5), np.int64)
    assert not numbers.any()
    numbers[:] = range(5)
    table = pa.table({"n": pa.Array.from_buffers(pa.int64(), 5, [None, pa.py_buffer(numbers)]), "s": pa.array(list("abcde"))})
    with share.share(table) as shared:
        t = contents(shared.ticket)
        assert [r.size for r in t.regions] == [4096, 4096], "one of allocate, and one of the copy"
        assert t.columns[0].buffers[1] == (1, 0)
        with fakes.Opener(shared.ticket) as opener:
            assert opener.request() == b"\1"
            assert np.frombuffer(os.pread(opener.files[0], 40, 0), np.int64).tolist() == [0, 1, 2, 3, 4]
            numbers[0] = 7  # what the opener sees, as it is the same memory
            assert np.frombuffer(os.pread(opener.files[0], 8, 0), np.int64).tolist() == [7]
            opener.send(b"r")
            shared.wait(20)
    sliced = pa.table({"n": table["n"]}).slice(2, 2)
    with share.share(sliced) as shared:
        assert contents(shared.ticket).columns[0].offset == 2
        assert len(contents(shared.ticket).regions) == 1
    with pytest.raises(ValueError, match="size = -1"):
        share.allocate(-1)
    assert len(share.allocate(0)) == 0


def blocks():
    """The descriptors and the mappings of memory that can be shared, once what was dropped is freed."""
    machines.settle()
    files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]
    with open("/proc/self/maps") as maps:
        return sum("memfd:arrowdevice" in file for file in files), maps.read().count("/memfd:arrowdevice")


def test_allocated_memory_is_freed():
    gc.collect()
    files, mappings = blocks()
    views = [share.allocate(1 << 20) for _ in range(20)]
    assert blocks() == (files + 20, mappings + 20)
    address = fakes.address(views[3])
    found = memory.Allocated()
    block = found.find(address)
    assert (block.address, block.size) == (address, 1 << 20)
    assert found.find(0) is found.find((1 << 64) - 1) is None
    assert block is found.find(address + (1 << 20) - 1) is not found.find(address - 1)
    assert found.find(address + (1 << 20)) is not block
    del found, block
    kept = np.frombuffer(views[3], np.uint8)
    del views
    assert blocks() == (files + 1, mappings + 1)
    del kept
    assert blocks() == (files, mappings)
    assert memory.Allocated().find(address) is None and address not in memory._blocks


def test_copies_are_aligned_and_made_once():
    column = pa.array(["ab", "c", None])
    table = pa.table({"a": column, "b": column})
    with share.share(table) as shared:
        t = contents(shared.ticket)
        assert t.columns[0].buffers == t.columns[1].buffers
        assert all(at % 64 == 0 for _, at in t.columns[0].buffers)


class _Stream:
    """Hides all of an object but its stream."""

    def __init__(self, source):
        self.source = source

    def __arrow_c_stream__(self, requested_schema=None):
        return self.source.__arrow_c_stream__(requested_schema)


def test_sources(reader):
    gc.collect()
    before = pa.total_allocated_bytes()
    batches = pa.table({"a": [1, 2]}).to_batches()
    for data in (batches[0], pa.table({"a": [1, 2]}), _Stream(pa.table({"a": [1, 2]})), pa.Table.from_batches(batches * 3)):
        with share.share(data) as shared:
            assert reader.open(shared.ticket) == f"opened {len(getattr(data, 'source', data))}"
            reader.ask("release")
            shared.wait(20)
    del batches, data, shared
    gc.collect()
    assert pa.total_allocated_bytes() == before, "streams and their batches are released"
    # Rows of a struct with an offset, as other libraries export a slice.
    structs = pa.StructArray.from_arrays([pa.array([1, None, 3, 4])], ["a"]).slice(1, 2)
    with share.share(structs) as shared:
        assert contents(shared.ticket).columns[0].offset == 1
        assert contents(shared.ticket).rows == 2


def test_sharing_what_was_opened(batch, reader):
    """Its schema and array are released, and its memory is that of another process, and so copied."""
    with share.share(batch) as shared:
        assert reader.open(shared.ticket) == "opened 5"
        reader.ask("release")
        shared.wait(20)
    batch.close()
    machines.eventually(lambda: cdata.exported() == 0)


def test_what_cannot_be_shared():
    class OfGPU:
        def __arrow_c_device_array__(self, requested_schema=None):
            raise AssertionError

    for data, error in ((1, TypeError), (OfGPU(), share.NotShareable), (pa.array([1]), share.NotShareable)):
        with pytest.raises(error):
            share.share(data)
    nulls = pa.StructArray.from_arrays([pa.array([1, 2])], ["a"], mask=pa.array([True, False]))
    with pytest.raises(share.NotShareable, match="without nulls"):
        share.share(nulls)
    with pytest.raises(ValueError, match="openers = 0"):
        share.share(pa.table({"a": [1]}), openers=0)
    wide = pa.table({f"{i} {'x' * 3000}": [1] for i in range(1500)})
    with pytest.raises(share.NotShareable, match="at most 4194304"):
        share.share(wide)
    assert cdata.exported() == 0


def test_waits():
    shared = share.share(pa.table({"a": [1]}))
    with pytest.raises(TimeoutError, match="the ticket can be opened 1 more times"):
        shared.wait(0)
    with pytest.raises(TimeoutError):
        shared.wait_opened(0)
    shared.close()
    shared.close()
    shared.wait(0)
    shared.wait_opened(0)


def test_import_is_light():
    """arrowdevice does not import share, and share no library."""
    program = """
import sys
import arrowdevice
assert "arrowdevice.share" not in sys.modules
import arrowdevice.share
heavy = {"pyarrow", "numpy", "numba", "google", "asyncio", "typing", "logging", "multiprocessing"} & set(sys.modules)
assert not heavy, heavy
"""
    run(program)


def test_no_free_descriptors(other):
    """The system drops the files that come; the owner is told."""
    program = """
import os, resource, sys
from arrowdevice import share
from arrowdevice.share.loop import loop
from arrowdevice.share.worker import worker
from arrowdevice.share.peer import is_same_user
worker.run(loop.start)
is_same_user(0)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
with open("/proc/sys/kernel/random/boot_id") as file:
    free = file.fileno()
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
try:
    share.open(bytes.fromhex(sys.argv[1]))
except OSError as error:
    print(error.errno == 24 and "free descriptors for only 0 files" in str(error) or error)
resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))  # the end of a thread needs some
"""
    assert run(program, other.share().hex()) == "True\n"
    machines.eventually(lambda: other.ask("openers") == "0")
    other.ask("close")
    assert other.ask("wait", 20) == "released"


def test_wait_for_the_exit_of_an_opener_is_bounded(monkeypatch):
    """One that closes the connection without a word may live on."""
    monkeypatch.setattr(sys.modules["arrowdevice.share.owner"], "_EXIT", 0.1)
    shared = share.share(pa.table({"a": [1]}))
    with fakes.Opener(shared.ticket) as opener:
        assert opener.request() == b"\1"
    shared.wait(20)


def test_wait_means_that_the_data_are_freed():
    """Also those that were not copied, while the Shared is alive."""
    gc.collect()
    before = blocks()
    for in_place in (False, True):
        numbers = np.frombuffer(share.allocate(80) if in_place else bytearray(80), np.int64)
        shared = share.share(pa.table({"n": pa.array(numbers), **({"s": ["a"] * 10} if in_place else {})}))
        del numbers
        assert blocks()[0] == before[0] + (2 if in_place else 1)
        shared.close()
        shared.wait(20)
        machines.eventually(lambda: blocks() == before)


OWNER_WITH_CHILD = """
import os, sys
import pyarrow as pa
from arrowdevice import share
shared = share.share(pa.table({"a": [1]}))
print(shared.ticket.hex(), flush=True)
sys.stdin.readline()
if os.fork() == 0:
    sys.stdin.read()
os._exit(0)
"""


def test_owner_that_exits_before_its_child():
    """The child keeps no connection."""
    gone = threading.Semaphore(0)
    command = [sys.executable, "-c", OWNER_WITH_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as owner:
        batch = share.open(bytes.fromhex(owner.stdout.readline()), owner_gone=gone.release)
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert gone.acquire(timeout=20)
        batch.close()


def sockets():
    return sum(os.readlink(entry.path).startswith("socket:") for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path))


def test_what_cannot_be_shared_is_freed():
    """Neither the data nor a socket is kept."""
    gc.collect()
    before = blocks(), sockets()
    numbers = np.frombuffer(share.allocate(8), np.int64)
    with pytest.raises(share.NotShareable, match="at most 4194304"):
        share.share(pa.table({f"{i} {'x' * 3000}": pa.array(numbers) for i in range(1500)}))
    del numbers
    machines.eventually(lambda: blocks() == before[0] and sockets() <= before[1])


def test_closed_owners_refuse_at_once():
    """Not only when their thread comes to it."""
    for _ in range(50):
        shared = share.share(pa.table({"a": [1]}))
        shared.close()
        with pytest.raises(ConnectionRefusedError):
            fakes.Opener(shared.ticket)
