"""Devices and contexts, as Numba finds them."""

import re
import threading

import numpy as np
import pytest
from numba import cuda
from numba.cuda.cudadrv.driver import Device
from numba.cuda.cudadrv.driver import driver as numba_driver

import driver
import simulator
from helpers import pinned


@pytest.fixture
def two():
    return cuda.gpus[0], cuda.gpus[1]


def ordinal(array):
    """Of the device that an array is on, as the driver knows it."""
    return driver.pointer(driver.DEVICE_ORDINAL, array.device_ctypes_pointer.value, driver.ctypes.c_int)


def test_devices_are_listed(machine):
    devices = cuda.list_devices()
    if simulator.is_simulator:
        assert len(devices) == (2 if machine == "two_devices" else 1)
    assert [device.id for device in devices] == list(range(len(devices)))
    assert len({device.uuid for device in devices}) == len(devices)
    for device in devices:
        assert device.name
        assert re.fullmatch(r"GPU-\w{8}-\w{4}-\w{4}-\w{4}-\w{12}", device.uuid)
        assert device.compute_capability >= (5, 0)
        identity = device.get_device_identity()
        assert Device.from_identity(identity).id == device.id


def test_attributes():
    device = cuda.get_current_device()
    assert device.WARP_SIZE == 32
    assert device.MULTIPROCESSOR_COUNT > 0
    assert device.MAX_THREADS_PER_BLOCK >= 512
    assert device.UNIFIED_ADDRESSING == 1
    assert device.CAN_MAP_HOST_MEMORY == 1
    assert device.MANAGED_MEMORY in (0, 1)
    with pytest.raises(AttributeError):
        device.NO_SUCH_ATTRIBUTE


def test_every_attribute_that_numba_knows_has_an_answer():
    from numba.cuda.cudadrv.driver import DEVICE_ATTRIBUTES

    device = Device(0)
    for name in DEVICE_ATTRIBUTES:
        if name != "MAX":
            assert isinstance(getattr(device, name), int), name


def test_version_of_the_driver():
    assert numba_driver.get_version() >= (11, 0)


def test_detect(capsys):
    assert cuda.detect()
    printed = capsys.readouterr().out
    assert f"Found {len(cuda.gpus)} CUDA devices" in printed
    assert cuda.get_current_device().uuid in printed


def test_context_is_the_primary_one():
    context = cuda.current_context()
    assert driver.ask(driver.handle, "cuCtxGetCurrent") == context.handle.value
    assert driver.ask(driver.ctypes.c_int, "cuCtxGetDevice") == context.device.id
    flags, active = driver.ctypes.c_uint(), driver.ctypes.c_int()
    driver.call("cuDevicePrimaryCtxGetState", 0, driver.ctypes.byref(flags), driver.ctypes.byref(active))
    assert active.value == 1


def test_new_thread_has_no_context_until_it_needs_one():
    seen = []

    def work():
        seen.append(driver.ask(driver.handle, "cuCtxGetCurrent"))
        try:
            driver.ask(driver.address, "cuMemAlloc_v2", driver.size(100))
        except driver.Error as e:
            seen.append(e.result)
        seen.append(cuda.current_context().handle.value)
        seen.append(driver.ask(driver.handle, "cuCtxGetCurrent"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    main = cuda.current_context().handle.value
    assert seen == [None, 201, main, main]  # CUDA_ERROR_INVALID_CONTEXT


def test_context_of_another_library_is_used():
    """The context that is current already, if it is a primary one."""
    seen = []

    def work():
        with driver.current_primary_context() as context:
            seen.append((cuda.current_context().handle.value, context))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen[0][0] == seen[0][1]


def test_context_that_is_not_primary_is_refused():
    failures = []

    def work():
        context = driver.ask(driver.handle, "cuCtxCreate_v2", 0, 0)
        try:
            cuda.current_context()
        except RuntimeError as e:
            failures.append(str(e))
        driver.call("cuCtxDestroy_v2", driver.handle(context))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(failures) == 1 and "non-primary" in failures[0]


@pytest.mark.two_devices
def test_memory_is_on_the_chosen_device(two):
    arrays = []
    for gpu in two:
        with gpu:
            assert cuda.get_current_device().id == gpu.id
            arrays.append(cuda.to_device(np.full(1000, gpu.id)))
    for gpu, array in zip(two, arrays):
        assert ordinal(array) == gpu.id
        with gpu:
            context = driver.pointer(driver.CONTEXT, array.device_ctypes_pointer.value)
            assert context == cuda.current_context().handle.value
            assert (array.copy_to_host() == gpu.id).all()


@pytest.mark.two_devices
@pytest.mark.parametrize("on_stream", [False, True], ids=["synchronous", "on_stream"])
def test_copy_between_devices(two, on_stream):
    want = np.arange(10_000)
    with two[0]:
        first = cuda.to_device(want)
    with two[1]:
        second = cuda.device_array_like(want)
        stream = cuda.stream() if on_stream else 0
        second.copy_to_device(first, stream=stream)
        got = second.copy_to_host(stream=stream)
        if stream:
            stream.synchronize()
    np.testing.assert_array_equal(got, want)


@pytest.mark.two_devices
def test_stream_waits_for_an_event_of_another_device(two):
    source = pinned(np.arange(1000))
    target = pinned(np.zeros(1000, "i8"))
    with two[0], driver.stream() as producer:
        written = cuda.event(timing=False)
        first = cuda.to_device(np.full(1000, -1))
        with two[1], driver.stream() as consumer:
            second = cuda.device_array(1000, "i8")
            waiting = cuda.external_stream(consumer)
            with two[0], driver.gate(producer) as gate:
                first.copy_to_device(source, stream=cuda.external_stream(producer))
                written.record(cuda.external_stream(producer))
                with two[1]:
                    written.wait(waiting)
                    second.copy_to_device(first, stream=waiting)
                    second.copy_to_host(target, stream=waiting)
                    assert (target == 0).all()
                    gate.open()
                    waiting.synchronize()
    np.testing.assert_array_equal(target, source)


@pytest.mark.two_devices
def test_event_and_stream_of_different_devices_do_not_go_together(two):
    """An event is recorded on streams of its own context only."""
    with two[0]:
        event = cuda.event()
    with two[1], driver.stream() as stream:
        with pytest.raises(driver.Error, match="CUDA_ERROR_INVALID_(HANDLE|CONTEXT)"):
            driver.record(event.handle.value, stream)


@pytest.mark.two_devices
def test_devices_are_peers(two):
    for gpu, other in (two, two[::-1]):
        with gpu:
            assert isinstance(cuda.current_context().can_access_peer(other.id), bool)
            assert not cuda.current_context().can_access_peer(gpu.id)


@pytest.mark.two_devices
@pytest.mark.simulator
def test_memory_is_counted_per_device(two):
    with two[1]:
        free, _ = cuda.current_context().get_memory_info()
        before = simulator.report()["live"]["device_bytes"]
        array = cuda.device_array(1 << 20, "u1")
        after = simulator.report()["live"]["device_bytes"]
        assert [a - b for a, b in zip(after, before)] == [0, array.nbytes]
        assert cuda.current_context().get_memory_info()[0] <= free - (1 << 20)


@pytest.mark.two_devices
def test_each_thread_has_its_own_device(two):
    start, seen = threading.Barrier(2), {}

    def work(gpu):
        with gpu:
            start.wait()
            for i in range(50):
                array = cuda.to_device(np.full(100, gpu.id * 1000 + i))
                assert ordinal(array) == gpu.id
                assert (array.copy_to_host() == gpu.id * 1000 + i).all()
            seen[gpu.id] = cuda.get_current_device().id

    threads = [threading.Thread(target=work, args=[gpu]) for gpu in two]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {0: 0, 1: 1}


@pytest.mark.simulator
@pytest.mark.program
def test_no_devices(run_program):
    def program():
        from numba import cuda
        from numba.cuda.cudadrv.error import CudaSupportError

        assert not cuda.is_available()
        try:
            cuda.current_context()
        except CudaSupportError as e:
            print(e)

    assert "CUDA_ERROR_NO_DEVICE" in run_program(program, "devices=0").check().output


@pytest.mark.simulator
@pytest.mark.program
def test_sixteen_devices(run_program):
    def program():
        import numpy
        from numba import cuda

        arrays = []
        for gpu in cuda.gpus:
            with gpu:
                arrays.append(cuda.to_device(numpy.full(10, gpu.id)))
        total = 0
        for gpu, array in zip(cuda.gpus, arrays):
            with gpu:
                total += int(array.copy_to_host()[3])
        print(total, len({d.uuid for d in cuda.list_devices()}))

    assert run_program(program, "devices=16").check().output == "120 16\n"


@pytest.mark.simulator
@pytest.mark.program
def test_devices_that_are_no_peers(run_program):
    """Copies between them still work."""

    def program():
        import numpy
        from numba import cuda

        with cuda.gpus[0]:
            print(cuda.current_context().can_access_peer(1))
            first = cuda.to_device(numpy.arange(100))
        with cuda.gpus[1]:
            second = cuda.device_array(100, "i8")
            second.copy_to_device(first)
            print(int(second.copy_to_host().sum()))

    assert run_program(program, "devices=2,peer=0").check().output == "False\n4950\n"
