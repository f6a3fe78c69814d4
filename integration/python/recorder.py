"""Both sides of the asynchronous interface in plain ctypes, which act as a test
requests and record the calls of the other side in order."""

import ctypes
import threading

import pyarrow as pa

import abi

PATIENCE = 30  # seconds, until a test fails whose other side does not come


class Log:
    """The calls received: tuples, in order, from any thread."""

    def __init__(self):
        self._changed = threading.Condition()
        self.calls, self.threads = [], []

    def add(self, *call):
        with self._changed:
            self.calls.append(call)
            self.threads.append(threading.get_ident())
            self._changed.notify_all()

    def wait_until(self, true_of):
        """Waits until something is true of the calls."""
        with self._changed:
            assert self._changed.wait_for(lambda: true_of(self.calls), PATIENCE), f"waited in vain; called: {self.calls}"

    def named(self, name):
        return [call for call in self.calls if call[0] == name]

    @property
    def requested(self):
        """How many batches were requested, in all."""
        return sum(n for _, n in self.named("request"))


def _encoded(metadata):
    return None if metadata is None else ctypes.create_string_buffer(abi.encode_metadata(metadata))


class RecordingProducer:
    """Calls the handler at an address: nothing is called but by a test. Its log has
    ("request", n), ("cancel",), ("extract", index of the task, wanted)."""

    def __init__(self, handler, device_type=abi.CPU, metadata=None):
        self.log = Log()
        self._handler = abi.ArrowAsyncDeviceStreamHandler.from_address(handler)
        self._tasks = []
        # C holds the addresses of all of these.
        self._callbacks = [
            abi.REQUEST(lambda _, n: self.log.add("request", n)),
            abi.CANCEL(lambda _: self.log.add("cancel")),
            abi.EXTRACT_DATA(self._extract),
        ]
        self._metadata = _encoded(metadata)
        request, cancel, self._extract_data = (ctypes.cast(c, ctypes.c_void_p).value for c in self._callbacks)
        self.struct = abi.ArrowAsyncProducer(device_type, request, cancel, ctypes.cast(self._metadata, ctypes.c_void_p), None)
        self._handler.producer = ctypes.pointer(self.struct)

    def on_schema(self, schema):
        struct = abi.ArrowSchema()
        schema._export_to_c(ctypes.addressof(struct))
        answer = abi.ON_SCHEMA(self._handler.on_schema)(ctypes.addressof(self._handler), ctypes.addressof(struct))
        assert not abi.is_filled(struct), "the consumer moves or releases the schema"
        return answer

    def on_next_task(self, batch, metadata=None, fails=0):
        """Offers a batch. With fails the task has an error of this errno instead."""
        self._tasks.append((batch, fails))
        task = abi.ArrowAsyncTask(self._extract_data, len(self._tasks))  # private data: not 0
        return self._on_next_task(ctypes.addressof(task), _encoded(metadata))

    def end(self):
        return self._on_next_task(None, None)

    def _on_next_task(self, task, metadata):
        call = abi.ON_NEXT_TASK(self._handler.on_next_task)
        return call(ctypes.addressof(self._handler), task, ctypes.cast(metadata, ctypes.c_void_p))

    def on_error(self, code, message, metadata=None):
        message, metadata = (None if message is None else message.encode()), _encoded(metadata)
        call = abi.ON_ERROR(self._handler.on_error)
        call(ctypes.addressof(self._handler), code, message, ctypes.cast(metadata, ctypes.c_void_p))

    def release(self):
        abi.RELEASE(self._handler.release)(ctypes.addressof(self._handler))
        self._handler = None

    def _extract(self, task, out):
        index = abi.ArrowAsyncTask.from_address(task).private_data - 1
        self.log.add("extract", index, bool(out))
        batch, fails = self._tasks[index]
        self._tasks[index] = None
        if out and not fails:
            batch._export_to_c_device(out)
        return fails


class RecordingConsumer:
    """A handler. Its log has ("on_schema",), ("on_next_task", index or None for the
    end), ("on_error", code, message), ("release",). A test requests, cancels and
    extracts, but not a task that it refused; requests is what on_schema requests at
    once, answers overrides the results of calls, {call: errno}."""

    def __init__(self, requests=0, answers=()):
        self.log = Log()
        self.schema, self.metadata, self.error_metadata = None, None, None
        self.batch_metadata, self._tasks = [], []
        self._requests, self._answers = requests, dict(answers)
        self._callbacks = [
            abi.ON_SCHEMA(self._on_schema),
            abi.ON_NEXT_TASK(self._on_next_task),
            abi.ON_ERROR(self._on_error),
            abi.RELEASE(lambda _: self.log.add("release")),
        ]
        self._handler = abi.ArrowAsyncDeviceStreamHandler(*(ctypes.cast(c, ctypes.c_void_p) for c in self._callbacks))
        self.handler = ctypes.addressof(self._handler)

    @property
    def producer(self):
        return self._handler.producer.contents

    def request(self, n):
        abi.REQUEST(self.producer.request)(ctypes.addressof(self.producer), n)

    def cancel(self):
        abi.CANCEL(self.producer.cancel)(ctypes.addressof(self.producer))

    def extract(self, index):
        """The batch of a task; None if it has none."""
        with abi.structs() as s:
            code = self._extract(index, s.addresses[0])
            if code:
                raise OSError(code, f"extract_data answered {code}")
            if not abi.is_filled(s.array):
                return None
            self.schema._export_to_c(s.addresses[1])
            return pa.RecordBatch._import_from_c_device(*s.addresses)

    def discard(self, index):
        """Ends a task whose batch is not wanted."""
        return self._extract(index, None)

    def _extract(self, index, out):
        task, self._tasks[index] = self._tasks[index], None
        return abi.EXTRACT_DATA(task.extract_data)(ctypes.addressof(task), out)

    def wait_for_release(self):
        self.log.wait_until(lambda calls: ("release",) in calls)

    def answer(self, *call):
        """The result of a callback; a test overrides it to act in the callback."""
        self.log.add(*call)
        return self._answers.get(call, 0)

    def _on_schema(self, _, schema):
        self.schema = pa.Schema._import_from_c(schema)
        self.metadata = abi.decode_metadata(self.producer.additional_metadata)
        if self._requests:
            self.request(self._requests)
        return self.answer("on_schema")

    def _on_next_task(self, _, task, metadata):
        if not task:
            return self.answer("on_next_task", None)
        self._tasks.append(abi.ArrowAsyncTask.from_buffer_copy(abi.ArrowAsyncTask.from_address(task)))
        self.batch_metadata.append(abi.decode_metadata(metadata))
        return self.answer("on_next_task", len(self._tasks) - 1)

    def _on_error(self, _, code, message, metadata):
        self.error_metadata = abi.decode_metadata(metadata)
        self.log.add("on_error", code, message and message.decode())
