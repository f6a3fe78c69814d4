"""Arrays that nanoarrow copies host -> device -> host, through the Arrow C device
interface at each step."""

import ctypes
import errno

import nanoarrow as na
import pytest
from nanoarrow.device import DeviceType, c_device_array
from numba import cuda

import driver
import machines
import nano
import samples
import simulator
from helpers import on_threads

# Sizes of strings are read from the device into pageable memory, and nanoarrow does
# not wait for that copy: test_nanoarrow_events.py has the defect as a test of its own.
# On the machine whose copies of pageable memory are late, it overwrites memory that
# was freed.
SIZES_CAN_BE_READ = [name for name in machines.MACHINES if name != "random"]


def each_sample(test, only=lambda sample: True):
    names = [name for name, sample in samples.SAMPLES.items() if only(sample)]
    return pytest.mark.parametrize("name", names)(test)


def each_plain_sample(test):
    return each_sample(test, lambda sample: not sample.strings)


def each_sample_with_strings(test):
    return pytest.mark.machines(*SIZES_CAN_BE_READ)(each_sample(test, lambda sample: sample.strings))


def addresses(array):
    """Of all buffers of an array and its children."""
    found = [address for address in array.buffers if address]
    for child in array.children:
        found += addresses(child)
    if array.dictionary:
        found += addresses(array.dictionary)
    return found


def memory_types(array):
    return {driver.pointer(driver.MEMORY_TYPE, address, ctypes.c_uint) for address in addresses(array)}


def to_host(array, stream):
    """nanoarrow returns before a copy into pageable memory is done, if the driver does:
    the owner of the stream can wait."""
    array = nano.copy(array, nano.resolve(nano.CPU, 0), stream)
    driver.call("cuStreamSynchronize", driver.handle(stream))
    return array


def round_trip(name, stream, device=0):
    sample = samples.SAMPLES[name]
    source = sample.make()
    assert nano.values(source) == sample.values
    on_device = nano.copy(source, nano.resolve(nano.CUDA, device), stream)
    assert on_device.device_type == DeviceType.CUDA
    assert on_device.device_id == device
    assert memory_types(on_device.array) <= {driver.DEVICE}
    back = to_host(on_device, stream)
    assert back.device_type == DeviceType.CPU
    assert nano.values(back) == sample.values


@each_plain_sample
def test_round_trip(name, stream):
    round_trip(name, stream)


@each_sample_with_strings
def test_round_trip_of_strings(name, stream):
    round_trip(name, stream)


@pytest.mark.parametrize("stream", [1, 2], ids=["legacy", "per_thread"])
def test_round_trip_on_default_streams(stream):
    round_trip("int32", stream)


@pytest.mark.machines(*SIZES_CAN_BE_READ)
@pytest.mark.parametrize("stream", [1, 2], ids=["legacy", "per_thread"])
def test_round_trip_of_strings_on_default_streams(stream):
    round_trip("string", stream)


@pytest.mark.two_devices
@each_sample
def test_round_trip_on_the_second_device(name):
    with cuda.gpus[1], driver.stream() as other:
        round_trip(name, other, device=1)


@pytest.mark.two_devices
@each_sample
def test_copy_from_device_to_device(name, stream):
    sample = samples.SAMPLES[name]
    source = sample.make()
    first = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    with cuda.gpus[1], driver.stream() as other:
        nano.wait(nano.resolve(nano.CUDA, 1), nano.sync_event(first), other)
        # The sizes of strings are read on the device that has them.
        with nano.View(first, stream) as view:
            second = c_device_array(view.copy(nano.resolve(nano.CUDA, 1), other))
        assert second.device_id == 1
        ordinals = {driver.pointer(driver.DEVICE_ORDINAL, a, ctypes.c_int) for a in addresses(second.array)}
        assert ordinals <= {1}
        assert nano.values(to_host(second, other)) == sample.values


@each_plain_sample
def test_copy_on_the_device(name, stream):
    sample = samples.SAMPLES[name]
    source = sample.make()
    first = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    second = nano.copy(first, nano.resolve(nano.CUDA, 0), stream)
    assert not set(addresses(first.array)) & set(addresses(second.array))
    driver.call("cuStreamSynchronize", driver.handle(stream))
    del first
    assert nano.values(to_host(second, stream)) == sample.values


@each_sample
def test_copy_to_pinned_memory_and_move_to_the_host(name, stream):
    sample = samples.SAMPLES[name]
    source = sample.make()
    pinned = nano.copy(source, nano.resolve(nano.CUDA_HOST, 0), stream)
    assert pinned.device_type == DeviceType.CUDA_HOST
    assert memory_types(pinned.array) <= {driver.HOST}
    on_host = nano.move(pinned, nano.resolve(nano.CPU, 0))
    assert addresses(on_host.array) == addresses(pinned.array)
    assert nano.values(on_host) == sample.values
    del pinned
    assert nano.values(on_host) == sample.values


def test_slices(stream):
    source = nano.array(na.c_array(list(range(100)), na.int32())[10:90])
    on_device = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    assert (on_device.array.offset, on_device.array.length) == (10, 80)
    assert nano.values(to_host(on_device, stream)) == list(range(10, 90))


@pytest.mark.machines(*SIZES_CAN_BE_READ)
def test_slices_of_strings(stream):
    words = [str(i) * (i % 7) for i in range(100)]
    source = nano.array(na.c_array(words, na.string())[13:77])
    on_device = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    assert nano.values(to_host(on_device, stream)) == words[13:77]


@pytest.mark.machines(*SIZES_CAN_BE_READ)
def test_sizes_are_read_from_the_device(stream):
    on_device = nano.copy(nano.array(["abc", None, "defghij"], na.string()), nano.resolve(nano.CUDA, 0), stream)
    with nano.View(on_device, stream) as view:
        assert view.sizes == [1, 16, 10]


@pytest.mark.simulator
@pytest.mark.machines(*SIZES_CAN_BE_READ)
def test_one_small_read_for_each_column_of_strings(stream):
    type = na.struct({"a": na.string(), "b": na.large_binary(), "c": na.int32()})
    columns = [
        na.c_array(["x"] * 1000, na.string()),
        na.c_array([b"yy"] * 1000, na.large_binary()),
        na.c_array([1] * 1000, na.int32()),
    ]
    source = nano.array(na.c_array_from_buffers(type, 1000, [None], children=columns))
    with simulator.counting() as counted:
        on_device = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
        driver.call("cuStreamSynchronize", driver.handle(stream))
        assert counted().bytes["htod"] == 1001 * 4 + 1000 + 1001 * 8 + 2000 + 1000 * 4
    with simulator.counting() as counted, nano.View(on_device, stream):
        driver.call("cuStreamSynchronize", driver.handle(stream))
        assert counted().bytes["dtoh"] == 4 + 8
        assert counted().calls["cuMemcpyDtoHAsync"] == 2


@pytest.mark.simulator
@pytest.mark.parametrize("function", ["cuMemAllocAsync", "cuMemcpyHtoDAsync"])
def test_failures_of_the_driver_reach_the_caller(stream, function):
    """And earlier allocations are freed."""
    source = nano.array(list(range(100)), na.int32())
    with simulator.failing(function, 700), pytest.raises(nano.Error) as failed:
        nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    assert failed.value.code == errno.EIO


def test_copies_by_many_threads():
    def work(i):
        with driver.stream() as stream:
            for start in range(10 * i, 10 * i + 10):
                source = nano.array(list(range(start, start + 100)), na.int32())
                on_device = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
                assert nano.values(to_host(on_device, stream)) == list(range(start, start + 100))
                del on_device

    on_threads(8, work)


@pytest.mark.simulator
@pytest.mark.program
def test_machine_without_pools(run_program):
    """nanoarrow has no other way to allocate."""

    def program():
        import nano
        import samples

        try:
            nano.copy(samples.SAMPLES["int32"].make(), nano.resolve(nano.CUDA, 0), 2)
        except nano.Error as e:
            print(e)

    assert run_program(program, "pools=0").check().output == "[EIO] \n"
