"""Asynchronous streams of Arrow C++ with itself: both sides of the peer work."""

import errno
import threading

import pyarrow as pa
import pytest

import abi
import arrays
import cpp

BATCHES = [pa.record_batch({"a": [i, None], "s": ["x" * i, None]}) for i in range(6)]
SCHEMA = BATCHES[0].schema.with_metadata({"k": "v"})
ALL = pa.Table.from_batches([b.replace_schema_metadata(SCHEMA.metadata) for b in BATCHES])


def source(batches=BATCHES):
    return pa.RecordBatchReader.from_batches(SCHEMA, [b.replace_schema_metadata(SCHEMA.metadata) for b in batches])


@pytest.mark.parametrize("device_type", [abi.CPU, abi.EXT_DEV], ids=["cpu", "ext_dev"])
@pytest.mark.parametrize("variant", ["nulls", "sliced", "empty"])
@pytest.mark.parametrize("name", arrays.CASES)
def test_every_type_comes_back(name, variant, device_type):
    batch = arrays.CASES[name].batch(variant)
    with cpp.Consumer() as consumer:
        reader = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 3)
        with cpp.Producer(reader, consumer.handler, device_type=device_type) as producer:
            assert consumer.device_type == device_type
            assert [back.equals(batch) for back, _ in consumer] == [True] * 3
            producer.wait()


@pytest.mark.parametrize("count", [0, 1, 5, 6, 500])
@pytest.mark.parametrize("queue_size", [1, 5, 40])
def test_streams_of_any_length_through_queues_of_any_size(count, queue_size):
    with cpp.Consumer(queue_size) as consumer:
        reader = pa.RecordBatchReader.from_batches(SCHEMA, [BATCHES[i % 6] for i in range(count)])
        with cpp.Producer(reader, consumer.handler):
            assert [batch.num_rows for batch, _ in consumer] == [2] * count


def test_slow_source_is_waited_for():
    ready = threading.Event()

    def slow():
        yield BATCHES[0]
        ready.wait()
        yield BATCHES[1]

    with cpp.Consumer() as consumer:
        with cpp.Producer(pa.RecordBatchReader.from_batches(BATCHES[0].schema, slow()), consumer.handler):
            assert consumer.next()[0].equals(BATCHES[0])
            ready.set()
            assert consumer.next()[0].equals(BATCHES[1])
            assert consumer.next() is None


def test_cancel_between_batches_ends_the_stream():
    cancelled = threading.Event()

    def batches():
        yield BATCHES[0]
        cancelled.wait()
        yield BATCHES[1]

    with cpp.Consumer() as consumer:
        with cpp.Producer(pa.RecordBatchReader.from_batches(BATCHES[0].schema, batches()), consumer.handler):
            consumer.next()
            consumer.cancel()
            consumer.cancel()
            cancelled.set()
            with pytest.raises(cpp.CppError, match="Consumer requested cancellation") as e:
                consumer.next()
            assert e.value.code == errno.EINVAL
            consumer.wait_for_release()
            consumer.cancel()


def test_failure_of_a_source_reaches_the_consumer():
    with cpp.Consumer() as consumer:
        with cpp.Producer(source(), consumer.handler, fails_after=0, status="IOError", message="disk gone"):
            with pytest.raises(cpp.CppError, match="^Unknown error: disk gone$") as e:
                consumer.next()
            assert e.value.code == errno.EINVAL


def test_many_streams_at_once_leave_nothing():
    def work():
        for _ in range(20):
            with cpp.Consumer() as consumer, cpp.Producer(source(), consumer.handler):
                assert consumer.read_all().equals(ALL)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
