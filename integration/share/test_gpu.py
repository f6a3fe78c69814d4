"""Memory of a GPU of a Go program, which Python opens. The driver is the simulated one, or that of CDEVICE_CUDA_DRIVER."""

import ctypes
import gc
import json
import os

import pytest

import abi
import fakes
import interrupts
import machines
import peer
from arrowdevice import share
from arrowdevice.share import cdata, gpu

DRIVER = os.environ.get("CDEVICE_CUDA_DRIVER") or os.environ["DEVICE_DRIVER"]


@pytest.fixture(scope="module")
def driver():
    """The driver of this process."""
    before = os.environ.get("CDEVICE_CUDA_DRIVER")
    os.environ["CDEVICE_CUDA_DRIVER"] = DRIVER
    gpu._driver.cache_clear()
    yield gpu._driver()
    gpu._driver.cache_clear()
    if before is None:
        del os.environ["CDEVICE_CUDA_DRIVER"]


@pytest.fixture(scope="module")
def owner(driver):
    with machines.process("go", driver=DRIVER) as p:
        yield p


def live():
    """What the simulated driver has for this process; nothing of another driver, which does not say."""
    library = gpu._driver()
    if not hasattr(library, "cudasim_report"):
        return None
    text = ctypes.create_string_buffer(1 << 20)
    library.cudasim_report(text, ctypes.c_size_t(len(text)))
    return json.loads(text.value)["live"]


@pytest.fixture(autouse=True)
def nothing_is_left(driver):
    before = live()
    yield
    gc.collect()
    cdata.sweep()
    machines.eventually(lambda: not gpu._open and cdata.exported() == 0 and live() == before)


class Taken:
    """A batch as a consumer has it, in the struct of a capsule."""

    def __init__(self, batch):
        _, capsule = batch.__arrow_c_device_array__()
        source = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(capsule, "arrow_device_array"))
        self.struct = abi.ArrowDeviceArray.from_buffer_copy(source)
        source.array.release = None

    def numbers(self, column):
        """The int32 of a column, after the owner's event."""
        array = self.struct.array.children[column].contents
        out = (ctypes.c_int32 * array.length)()
        context = gpu._ask(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", 0)
        with gpu._current(context):
            if self.struct.sync_event:
                gpu._call("cuEventSynchronize", ctypes.c_void_p.from_address(self.struct.sync_event))
            gpu._call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(array.buffers[1] + 4 * array.offset), ctypes.c_size_t(4 * array.length))
        gpu._call("cuDevicePrimaryCtxRelease_v2", 0)
        return list(out)

    def release(self):
        abi.release(self.struct)


WANT = [v or 0 for v in peer.CASES["int32"].array("valid").to_pylist()]


def test_memory_of_go(owner):
    ticket = owner.share("int32", "valid", "gpu")
    batch = share.open(ticket)
    assert (batch.device, len(batch)) == ("cuda:0", len(WANT))
    assert not hasattr(batch, "__arrow_c_array__"), "the CPU cannot access it"
    taken = Taken(batch)
    assert (taken.struct.device_type, taken.struct.device_id) == (abi.CUDA, 0)
    assert taken.numbers(0) == taken.numbers(1) == WANT
    batch.close()
    with pytest.raises(machines.Refused):
        owner.ask("wait", 0.1)
    assert taken.numbers(0) == WANT
    taken.release()
    assert owner.ask("wait", 20) == "released"


def test_the_event_is_the_owners(owner):
    """A ticket of a batch whose copy is pending has an event."""
    with share.open(owner.share("int32", "valid", "busy")) as batch:
        taken = Taken(batch)
        event = ctypes.c_void_p.from_address(taken.struct.sync_event)
        assert gpu._driver().cuEventQuery(event) == 600, "not ready"
        owner.ask("finish")
        assert taken.numbers(0) == WANT
        assert gpu._driver().cuEventQuery(event) == 0
        taken.release()
    assert owner.ask("wait", 20) == "released"


def test_one_allocation_in_two_batches(owner):
    """The driver opens an allocation once for a process."""
    ticket = owner.share("int32", "valid", "gpu", openers=2)
    first, second = share.open(ticket), share.open(ticket)
    taken = Taken(second)
    first.close()
    machines.eventually(lambda: owner.ask("openers") == "1")
    assert taken.numbers(0) == WANT, "the second still has it open"
    taken.release()
    second.close()
    assert owner.ask("wait", 20) == "released"


def test_owner_that_is_killed(driver):
    """Closing the memory works as always."""
    owner = machines.Process("go", driver=DRIVER)
    gone = []
    batch = share.open(owner.share("int32", "valid", "gpu"), owner_gone=lambda: gone.append(1))
    owner.kill()
    owner.process.stdin.close()
    owner.process.stdout.close()
    machines.eventually(lambda: gone)
    batch.close()


def test_failing_calls(owner, driver, monkeypatch):
    """An opening that fails does not count, and leaves nothing open."""
    ticket = owner.share("int32", "valid", "gpu")
    real = gpu._call

    def failing(function, *arguments):
        if function == "cuIpcOpenMemHandle_v2":
            raise gpu.DriverError(f"{function}: CUDA_ERROR_UNKNOWN")
        real(function, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(gpu, "_call", failing)
        with pytest.raises(OSError, match="cuIpcOpenMemHandle_v2: CUDA_ERROR_UNKNOWN"):
            share.open(ticket)
    machines.eventually(lambda: owner.ask("openers") == "0")
    with share.open(ticket) as batch:
        taken = Taken(batch)
        assert taken.numbers(0) == WANT
        taken.release()
    assert owner.ask("wait", 20) == "released"


def test_interrupted_openings(owner):
    """Whenever a signal handler raises, nothing stays open."""
    ticket = owner.share("int32", "valid", "gpu", openers=1 << 30)

    def open_batch():
        with share.open(ticket) as batch:
            Taken(batch).release()

    interrupts.at_each_point(open_batch)
    interrupts.at_random(interrupts.Alarms(), interrupts.COUNT, open_batch)
    machines.eventually(lambda: owner.ask("openers") == "0")
    owner.ask("close")
    assert owner.ask("wait", machines.LIMIT) == "released"


def test_region_that_is_larger_than_its_memory(owner, driver):
    """Consumers would access other memory of the GPU."""
    real = owner.share("int32", "valid", "gpu")
    with fakes.owner() as other:
        size = [fakes.tickets.Region(r.handle, 1 << 40) for r in fakes.content(real).regions]
        with pytest.raises(share.BadTicket, match=r"regions\[0\].size = 1099511627776, want at most"):
            share.open(other.ticket(real, regions=size))
        machines.eventually(lambda: other.last == [b"f"])
    assert not gpu._open
    owner.ask("close")


@pytest.mark.filterwarnings("ignore:memory of the GPU stays open:ResourceWarning")
def test_memory_that_the_driver_does_not_close(owner, driver, monkeypatch):
    """The owner retains it until this process exits."""
    batch = share.open(owner.share("int32", "valid", "gpu"))
    real = gpu._call

    def failing(function, *arguments):
        if function == "cuIpcCloseMemHandle":
            raise gpu.DriverError(f"{function}: CUDA_ERROR_UNKNOWN")
        real(function, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(gpu, "_call", failing)
        batch.close()
        machines.eventually(lambda: gpu._lost)
    assert owner.ask("openers") == "1"
    for (ordinal, handle), (address, _) in list(gpu._open.items()):
        with gpu._current(gpu._ask(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", ordinal)):
            gpu._call("cuIpcCloseMemHandle", address)
        gpu._open.pop((ordinal, handle))
        gpu._call("cuDevicePrimaryCtxRelease_v2", ordinal)
        gpu._call("cuDevicePrimaryCtxRelease_v2", ordinal)
    owner.ask("close")
    gpu._lost.pop()(b"r")
    assert owner.ask("wait", 20) == "released"
