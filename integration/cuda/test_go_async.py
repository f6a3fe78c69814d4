"""Asynchronous streams from Go of copies on the device: nanoarrow copies them back."""

import ctypes
import errno
import threading

import golib
import gosource
import pytest
from nanoarrow.device import DeviceType, c_device_array
from numba import cuda

import abi
import capsules
import driver
import go
import simulator

pytestmark = pytest.mark.usefixtures("golang")

UNKNOWN = 999  # CUDA_ERROR_UNKNOWN
TIMEOUT = 30  # seconds, until a test fails whose other side does not come


class Consumer:
    """A handler that requests some batches, and keeps the tasks."""

    def __init__(self, requests):
        self.device_type, self.tasks, self.error = None, [], None
        self._requests, self._released = requests, threading.Event()
        self._callbacks = [
            abi.ON_SCHEMA(self._on_schema),
            abi.ON_NEXT_TASK(self._on_next_task),
            abi.ON_ERROR(self._on_error),
            abi.RELEASE(lambda _: self._released.set()),
        ]
        self._struct = abi.ArrowAsyncDeviceStreamHandler(*(ctypes.cast(c, ctypes.c_void_p) for c in self._callbacks))
        self.handler = ctypes.addressof(self._struct)
        self._changed = threading.Condition()

    def _on_schema(self, _, schema):
        abi.release(abi.ArrowSchema.from_address(schema))  # the batches have their own
        producer = self._struct.producer.contents
        self.device_type = producer.device_type
        abi.REQUEST(producer.request)(ctypes.addressof(producer), self._requests)
        return 0

    def _on_next_task(self, _, task, metadata):
        with self._changed:
            self.tasks.append(task and abi.ArrowAsyncTask.from_buffer_copy(abi.ArrowAsyncTask.from_address(task)))
            self._changed.notify_all()
        return 0

    def _on_error(self, _, code, message, metadata):
        self.error = code, message.decode()

    def wait_for_tasks(self, count):
        """The end is one too."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.tasks) == count, TIMEOUT)

    def wait_for_release(self):
        assert self._released.wait(TIMEOUT)

    def extract(self, index, out=None):
        """The result of the task."""
        task = self.tasks[index]
        return abi.EXTRACT_DATA(task.extract_data)(ctypes.addressof(task), out and ctypes.addressof(out))


def arrives(name, stream, device=0):
    for variant in go.VARIANTS:
        with golib.GoBatch.make(name, variant) as host:
            consumer = Consumer(requests=2)
            gosource.export([host, host], consumer.handler, copy_to=(abi.CUDA, device))
            consumer.wait_for_tasks(3)
            assert (consumer.device_type, consumer.tasks[2]) == (abi.CUDA, None)
            for i in range(2):
                struct = abi.ArrowDeviceArray()
                assert consumer.extract(i, struct) == 0
                array = c_device_array(capsules.Produced(host, struct))
                assert (array.device_type, array.device_id) == (DeviceType.CUDA, device)
                back = go.copy_by_nanoarrow(array, stream)
                assert go.difference(back, name, variant, golib.GoBatch) == "", variant
            consumer.wait_for_release()
            assert consumer.error is None


@pytest.mark.parametrize("name", go.SOME_PLAIN)
def test_arrives(name, stream):
    arrives(name, stream)


@pytest.mark.machines(*go.SIZES_CAN_BE_READ)
@pytest.mark.parametrize("name", go.SOME_STRINGS)
def test_strings_arrive(name, stream):
    arrives(name, stream)


@pytest.mark.two_devices
def test_arrives_on_the_device_that_was_named():
    with cuda.gpus[1], driver.stream() as there:
        arrives("int64", there, device=1)


@pytest.mark.simulator
def test_extraction_hands_over_a_copy_that_was_made_before():
    """With the event of the copy; a task that is not wanted gives its copy back."""
    with golib.GoBatch.make("int64", "nulls") as host:
        consumer = Consumer(requests=2)
        gosource.export([host, host], consumer.handler, copy_to=(abi.CUDA, 0))
        consumer.wait_for_tasks(3)
        assert consumer.extract(0) == 0
        with abi.structs() as s:
            assert consumer.extract(1, s.array) == 0
            assert s.array.device_type == abi.CUDA
            assert s.array.sync_event
        consumer.wait_for_release()


@pytest.mark.simulator
def test_failed_copy_is_the_error_of_the_stream():
    with golib.GoBatch.make("int64", "nulls") as host:
        consumer = Consumer(requests=1)
        with simulator.failing("cuMemcpyAsync", UNKNOWN):
            gosource.export([host], consumer.handler, copy_to=(abi.CUDA, 0))
            consumer.wait_for_release()
    code, text = consumer.error
    assert code == errno.EIO
    assert "cuMemcpyAsync" in text
