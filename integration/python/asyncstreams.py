"""Asynchronous streams between Arrow C++ and Go."""

import contextlib
import ctypes

import pyarrow as pa

import abi
import cpp
import goasync
import gosource

BATCHES = [pa.record_batch({"a": [i, None], "s": ["x" * i, None]}) for i in range(6)]
SCHEMA = BATCHES[0].schema
ROWS = [batch.to_pylist() for batch in BATCHES]


@contextlib.contextmanager
def cpp_to_go(source, queue_size=0, full_validation=False, context=None, **options):
    """A goasync.AsyncStream of a pa.RecordBatchReader that Arrow C++ exports. It ends
    first: the producer waits for its end, which may be a cancel."""
    stream = goasync.AsyncStream(queue_size, full_validation, context)
    with cpp.Producer(source, stream.handler, **options), stream:
        yield stream


@contextlib.contextmanager
def go_to_cpp(items, queue_size=5, **options):
    """A cpp.Consumer of a stream that Go exports; see gosource.export."""
    with cpp.Consumer(queue_size) as consumer:
        gosource.export(items, consumer.handler, **options)
        yield consumer


class TaskWatch:
    """Stands before a handler's on_next_task, and knows which tasks are not extracted:
    Arrow C++ can lose some, and a test then ends them in its place."""

    def __init__(self, handler):
        struct = abi.ArrowAsyncDeviceStreamHandler.from_address(handler)
        self._forward = abi.ON_NEXT_TASK(struct.on_next_task)
        self._open = {}  # extract_data of each, by its private data
        self._callbacks = [abi.ON_NEXT_TASK(self._on_next_task), abi.EXTRACT_DATA(self._extract)]
        struct.on_next_task, self._extract_data = (ctypes.cast(c, ctypes.c_void_p).value for c in self._callbacks)

    def _on_next_task(self, handler, task, metadata):
        if task:
            struct = abi.ArrowAsyncTask.from_address(task)
            self._open[struct.private_data], struct.extract_data = struct.extract_data, self._extract_data
        return self._forward(handler, task, metadata)

    def _extract(self, task, out):
        private_data = abi.ArrowAsyncTask.from_address(task).private_data
        return self._call(private_data, self._open.pop(private_data), out)

    def _call(self, private_data, extract_data, out):
        task = abi.ArrowAsyncTask(extract_data, private_data)
        return abi.EXTRACT_DATA(extract_data)(ctypes.addressof(task), out)

    def discard(self):
        """Ends the tasks that are not extracted, and returns their number."""
        lost, self._open = self._open, {}
        for private_data, extract_data in lost.items():
            assert self._call(private_data, extract_data, None) == 0
        return len(lost)
