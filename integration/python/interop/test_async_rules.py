"""Go's asynchronous streams with another side that a test controls: the rules that
Arrow C++ cannot show, because it breaks them or hides them."""

import errno
import threading

import pyarrow as pa
import pytest

import abi
import goasync
import golib
import gosource
import recorder
from asyncstreams import BATCHES, ROWS, SCHEMA
from goasync import AsyncError, released
from golib import GoError
from gosource import Context, Failure
from gostream import wait_until
from streams import go_batches

# Go as the consumer.


class Producer(recorder.RecordingProducer):
    released = False

    def release(self):
        self.released = True
        super().release()


class Stream(goasync.AsyncStream):
    """A stream of Go's with a producer that has sent the schema."""

    def __init__(self, queue_size=3, schema=SCHEMA, device_type=abi.CPU, metadata=None, **options):
        super().__init__(queue_size, **options)
        self.producer = Producer(self.handler, device_type, metadata)
        self.answer = self.producer.on_schema(schema)
        self.calls = self.producer.log.calls

    def __exit__(self, failed, *_):
        if failed and not self.producer.released:
            self.producer.release()  # which the test did not come to, and close waits for
        self.close()


def test_go_requests_its_queue_in_on_schema_and_one_more_for_each_batch():
    """After it was extracted: a queue is never longer than it was made."""
    with Stream(queue_size=3) as stream:
        assert stream.calls == [("request", 3)]
        for batch in BATCHES[:3]:
            assert stream.producer.on_next_task(batch) == 0
        assert stream.calls == [("request", 3)], "what comes is extracted by who takes it"
        for i in range(3):
            with stream.next()[0] as batch:
                assert batch.values() == ROWS[i]
            wait_until(lambda: len(stream.calls) == 3 + 2 * i)  # the request comes from another thread
            assert stream.calls[-2:] == [("extract", i, True), ("request", 1)]
        stream.producer.end()
        stream.producer.release()
        assert stream.next() is None
        assert len(stream.calls) == 7


def test_go_takes_what_is_said_beside_the_batches():
    with Stream(metadata={b"rows": b"\0\1", b"": b""}) as stream:
        assert stream.metadata == {b"rows": b"\0\1", b"": b""}
        for metadata in ({b"n": b"0\0"}, None, {}):
            stream.producer.on_next_task(BATCHES[0], metadata)
        stream.producer.end()
        stream.producer.release()
        taken = list(stream)
        with released(taken):
            assert [metadata for _, metadata in taken] == [{b"n": b"0\0"}, None, None]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, -7, 0])
@pytest.mark.parametrize("message", ["disk gone", "", None])
def test_go_has_all_of_an_error_after_the_batches_before_it(code, message):
    metadata = {b"disk": b"\0\1", b"rack": b"7"}
    with Stream() as stream:
        stream.producer.on_next_task(BATCHES[0])
        stream.producer.on_error(code, message, metadata)
        stream.producer.release()
        stream.next()[0].release()
        with pytest.raises(AsyncError) as e:
            stream.next()
        assert (e.value.callback, e.value.code, e.value.message) == ("ArrowAsyncDeviceStreamHandler.on_error", code, message or "")
        assert e.value.metadata == metadata
        assert stream.calls == [("request", 3), ("extract", 0, True)]


def test_go_refuses_more_than_it_requested_and_extracts_it_for_nobody():
    with Stream(queue_size=1) as stream:
        assert stream.producer.on_next_task(BATCHES[0]) == 0
        assert stream.producer.on_next_task(BATCHES[1]) == errno.EINVAL
        stream.producer.release()
        assert stream.calls == [("request", 1), ("extract", 1, False)]
        stream.next()[0].release()
        with pytest.raises(GoError, match="on_next_task = called, want no more tasks than were requested"):
            stream.next()


def test_go_refuses_a_schema_that_is_none_and_requests_nothing():
    with Stream(schema=pa.int32()) as stream:
        assert stream.answer == errno.EINVAL
        stream.producer.release()
        with pytest.raises(GoError, match="ArrowAsyncDeviceStreamHandler.on_schema"):
            stream.schema
        assert stream.calls == []


def test_go_gives_the_error_that_follows_a_failed_extraction():
    with Stream(queue_size=2) as stream:
        stream.producer.on_next_task(BATCHES[0], fails=errno.EIO)
        stream.producer.on_next_task(BATCHES[1])
        errors = []

        def take():
            with pytest.raises(AsyncError) as e:
                stream.next()
            errors.append(e.value)

        thread = threading.Thread(target=take)
        thread.start()
        stream.producer.log.wait_until(lambda calls: ("extract", 1, False) in calls)
        stream.producer.on_error(errno.ENODEV, "the device is gone", {b"device": b"0"})
        thread.join()
        stream.producer.release()
    [error] = errors
    assert (error.callback, error.code, error.message) == ("ArrowAsyncDeviceStreamHandler.on_error", errno.ENODEV, "the device is gone")
    assert error.metadata == {b"device": b"0"}


def test_go_gives_the_code_of_a_failed_extraction_that_nothing_follows():
    with Stream() as stream:
        stream.producer.on_next_task(BATCHES[0], fails=errno.EIO)
        stream.producer.end()
        stream.producer.release()
        with pytest.raises(AsyncError) as e:
            stream.next()
        assert (e.value.callback, e.value.code, e.value.message) == ("ArrowAsyncTask.extract_data", errno.EIO, "")


def test_go_refuses_a_batch_of_another_device():
    with Stream(device_type=abi.EXT_DEV) as stream:
        assert stream.device_type == abi.EXT_DEV
        stream.producer.on_next_task(BATCHES[0])
        stream.producer.end()
        stream.producer.release()
        with pytest.raises(GoError, match="ArrowAsyncTask.extract_data.device_type = 1, want 12"):
            stream.next()


def test_go_notices_a_stream_that_is_released_in_the_middle():
    with Stream() as stream:
        stream.producer.on_next_task(BATCHES[0])
        stream.producer.release()
        stream.next()[0].release()
        with pytest.raises(GoError, match="release before the end of the stream: unexpected EOF"):
            stream.next()


@pytest.mark.parametrize("how", ["close", "context"])
def test_go_cancels_once_and_extracts_what_is_ready_for_nobody(how):
    """So are batches that arrive until the producer has noticed, which close waits
    for."""
    with Context() as context:
        with Stream(queue_size=3, context=context) as stream:
            stream.producer.on_next_task(BATCHES[0])
            thread = threading.Thread(target=stream.cancel if how == "close" else context.cancel)
            thread.start()
            stream.producer.log.wait_until(lambda calls: ("cancel",) in calls)
            assert stream.producer.on_next_task(BATCHES[1]) == 0
            if how == "close":
                thread.join(0.05)
                assert thread.is_alive(), "close waits for the release"
            stream.producer.release()
            thread.join()
        assert stream.calls[:2] == [("request", 3), ("cancel",)], "it cancels first"
        assert sorted(stream.calls[2:]) == [("extract", 0, False), ("extract", 1, False)]


# Go as the producer.


def calls_of(consumer):
    """Go's calls, complete once it has released the handler."""
    consumer.wait_for_release()
    return consumer.log.calls


def test_go_calls_in_order_and_ends_without_a_request():
    with go_batches(BATCHES) as items:
        consumer = recorder.RecordingConsumer(requests=len(items))
        gosource.export(items, consumer.handler, metadata={b"rows": b"\0\1"})
        assert calls_of(consumer) == [("on_schema",), *(("on_next_task", i) for i in range(6)), ("on_next_task", None), ("release",)]
        assert consumer.schema.equals(SCHEMA)
        assert consumer.metadata == {b"rows": b"\0\1"}
        assert consumer.batch_metadata == [None] * 6
    for i, want in enumerate(ROWS):
        assert consumer.extract(i).to_pylist() == want, "a task is extracted after release too"


def test_go_sends_no_more_than_is_requested():
    with go_batches(BATCHES) as items:
        consumer = recorder.RecordingConsumer()
        gosource.export(items, consumer.handler)
        for i in range(len(items)):
            consumer.log.wait_until(lambda calls: len(calls) == i + 1)
            consumer.request(1)
        consumer.wait_for_release()
        for i in range(len(items)):
            assert consumer.discard(i) == 0


def test_go_takes_requests_inside_its_calls_and_after_release():
    class Greedy(recorder.RecordingConsumer):
        def answer(self, *call):
            if call != ("on_next_task", None):
                self.request(1)
            return super().answer(*call)

    with go_batches(BATCHES) as items:
        consumer = Greedy()
        gosource.export(items, consumer.handler)
        assert calls_of(consumer)[-2:] == [("on_next_task", None), ("release",)]
        for i in range(len(items)):
            consumer.request(1)
            consumer.cancel()
            consumer.discard(i)


@pytest.mark.parametrize("n", [0, -1])
def test_go_reports_a_request_that_is_none(n):
    with go_batches(BATCHES) as items:
        consumer = recorder.RecordingConsumer()
        gosource.export(items, consumer.handler)
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        consumer.request(n)
        calls = calls_of(consumer)
    assert calls[1][:2] == ("on_error", errno.EINVAL)
    assert f"ArrowAsyncProducer.request.n = {n}" in calls[1][2]
    assert [call[0] for call in calls] == ["on_schema", "on_error", "release"]


@pytest.mark.parametrize("inside", [False, True])
def test_go_says_nothing_after_a_cancel(inside):
    """Release, and no error."""

    class Timid(recorder.RecordingConsumer):
        def answer(self, *call):
            if inside and call == ("on_schema",):
                self.cancel()
                self.request(3)
            return super().answer(*call)

    with go_batches(BATCHES) as items:
        consumer = Timid()
        gosource.export(items, consumer.handler)
        consumer.log.wait_until(lambda calls: ("on_schema",) in calls)
        if not inside:
            consumer.cancel()
            consumer.request(3)
        assert calls_of(consumer) == [("on_schema",), ("release",)]


@pytest.mark.parametrize("call", [("on_schema",), ("on_next_task", 1), ("on_next_task", None)])
def test_go_says_nothing_after_a_callback_that_fails(call):
    """Release, and no error; the task that was refused is Go's again."""
    with go_batches(BATCHES) as items:
        consumer = recorder.RecordingConsumer(requests=len(items), answers={call: errno.EIO})
        gosource.export(items, consumer.handler)
        assert calls_of(consumer)[-2:] == [call, ("release",)]
        for i in range(len(consumer.log.named("on_next_task")) - 1):
            assert consumer.discard(i) == 0


@pytest.mark.parametrize("kind, code", [("error", errno.EIO), ("no_space", errno.ENOSPC), ("cancelled", errno.ECANCELED)])
def test_go_has_no_metadata_for_an_error_that_is_its_own(kind, code):
    with go_batches(BATCHES) as items:
        consumer = recorder.RecordingConsumer()
        gosource.export([Failure(kind, "dïsk gone")], consumer.handler, like=items[0])
        schema, error, end = calls_of(consumer)
    assert (schema, end) == (("on_schema",), ("release",))
    assert error[:2] == ("on_error", code) and "dïsk gone" in error[2]
    assert consumer.error_metadata is None


@pytest.mark.parametrize("code, want", [(errno.ENOSPC, errno.ENOSPC), (-7, -7), (0, errno.EIO)])
def test_errors_keep_their_code_through_go(code, want):
    """Zero is none, and becomes EIO. The text names the origin of the error."""
    with Stream() as stream:
        consumer = recorder.RecordingConsumer(requests=2)
        stream.forward(consumer.handler)
        stream.producer.on_next_task(BATCHES[0], {b"n": b"0"})
        stream.producer.on_error(code, "disk gone", {b"disk": b"3"})
        stream.producer.release()
        calls = calls_of(consumer)
        assert calls[:2] == [("on_schema",), ("on_next_task", 0)]
        assert consumer.batch_metadata == [{b"n": b"0"}]
        assert calls[2][:2] == ("on_error", want) and calls[2][2].endswith(": disk gone")
        assert consumer.extract(0).to_pylist() == ROWS[0]
    assert golib.stats()["async_streams"] == 0
