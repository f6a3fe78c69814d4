"""Iterables and callables of Python as streams, which Go reads."""

import ctypes
import errno
import gc
import threading
import traceback
import weakref

import polars
import pyarrow as pa
import pytest

import abi
import arrowdevice
from extension import settled
from streams import on_threads

BATCH = pa.record_batch({"a": [1, 2]})
TABLE = pa.table({"a": pa.chunked_array([[3], [4, 5]])})


def numbers(result):
    return result.to_pyarrow()["a"].to_pylist()


class Boom(Exception):
    pass


def watched(ended, batches=2):
    """A generator of batches, which notes its end, and the thread of it."""
    try:
        for _ in range(batches):
            yield BATCH
    finally:
        ended.append(threading.get_ident())


def fails(error, batches=1):
    """A generator of batches, and then an exception."""
    yield from [BATCH] * batches
    raise error


def test_items_of_all_kinds(ext):
    def generate():
        yield BATCH
        yield polars.DataFrame({"a": [6]})
        yield TABLE
        with ext.echo_batch(BATCH) as own:
            yield own
        yield ext.counters(2, 2).to_pyarrow().rename_columns(["a"])

    assert numbers(ext.echo_reader(generate())) == [1, 2, 6, 3, 4, 5, 1, 2, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [BATCH, BATCH],
        lambda: (BATCH, BATCH),
        lambda: iter([BATCH, BATCH]),
        lambda: (b for b in [BATCH, BATCH]),
        lambda: map(lambda b: b, [BATCH, BATCH]),
        lambda: iter([BATCH, BATCH, None, BATCH]).__next__,
    ],
    ids=["list", "tuple", "iterator", "generator", "map", "callable"],
)
def test_iterables_and_callables(ext, make):
    assert ext.count(make()) == 4
    assert numbers(ext.echo_reader(make())) == [1, 2, 1, 2]


def test_items_are_made_when_they_are_read(ext):
    made = []

    def generate():
        for i in range(3):
            made.append(i)
            yield pa.record_batch({"a": [i]})

    with ext.echo_reader(generate()) as reader:
        assert made == [0]
        assert [numbers(next(reader)) for _ in range(2)] == [[0], [1]]
        assert made == [0, 1]
    assert settled() == {}
    assert made == [0, 1]


def test_schema_without_items(ext):
    class Empty:
        schema = BATCH.schema

        def __iter__(self):
            return iter([])

    assert ext.count(Empty()) == 0
    assert ext.echo_reader(Empty()).to_pyarrow().schema == BATCH.schema
    for empty in ([], iter([]), (x for x in []), lambda: None):
        with pytest.raises(ValueError, match="source: has no items, and no attribute schema"):
            ext.count(empty)


def test_stream_without_batches_is_no_item(ext):
    """The next item has the first batch."""
    assert ext.count([TABLE.slice(0, 0), BATCH]) == 2


def test_exception_of_the_first_item_is_the_callers_own(ext):
    with pytest.raises(Boom, match="first"):
        ext.count(fails(Boom("first"), 0))


@pytest.mark.parametrize("error", [Boom("later"), TypeError("later"), MemoryError(), KeyboardInterrupt(), NotImplementedError("later")], ids=repr)
def test_exception_of_a_later_item_is_raised(ext, error):
    """It is the same object, with the traceback of the source."""
    for read in (ext.count, lambda source: ext.echo_reader(source).read_all()):
        error.__traceback__ = None
        with pytest.raises(type(error)) as raised:
            read(fails(error))
        assert raised.value is error
        assert "fails" in [f.name for f in traceback.extract_tb(raised.tb)]
        raised = None
    error.__traceback__ = None


def test_exception_that_is_raised_again_has_each_note_once(ext):
    """Sources may share one, and a source may raise its own again."""

    class Raises:
        def __arrow_c_array__(self):
            raise error

    error = Boom("mine")
    for _ in range(3):
        for read in (ext.count, lambda source: ext.echo_reader(source).read_all(), lambda _: ext.count(Raises())):
            with pytest.raises(Boom):
                read(fails(error))
    read = "raised by a source, which Go read: "
    notes = [f"{read}count: Boom: mine", f"{read}Boom: mine", "count: argument stream"]
    assert getattr(error, "__notes__", notes) == notes  # since Python 3.11
    error.__traceback__ = None


def test_source_is_released_while_an_exception_propagates(ext):
    """PyArrow drops the stream on the way out of cast; the source is closed, and the exception is PyArrow's."""
    ended = []
    with pytest.raises(ValueError, match="field names are not matching"):
        pa.RecordBatchReader.from_stream(ext.echo_reader(watched(ended))).cast(pa.schema([("z", pa.utf8())]))
    assert len(ended) == 1


def test_exception_of_a_generators_end_is_reported(ext, monkeypatch):
    """A release has no caller to raise it to."""
    ignored = []
    monkeypatch.setattr("sys.unraisablehook", lambda u: ignored.append((u.exc_type, str(u.exc_value))))

    def generate():
        try:
            yield BATCH
        finally:
            raise Boom("at the end")

    ext.ignore(generate())
    assert settled() == {}
    assert ignored == [(Boom, "at the end")]


@pytest.mark.parametrize("read", [next, lambda reader: reader.read_all(), lambda reader: reader.to_pyarrow()], ids=["next", "read_all", "to_pyarrow"])
def test_source_that_reads_its_own_reader_is_refused(ext, read):
    def generate():
        yield BATCH
        read(held[0])
        yield BATCH

    held = [ext.echo_reader(generate())]
    with held[0], pytest.raises(ValueError, match="waiting for the source that reads it"):
        held[0].read_all()
    held.clear()


class Item:
    """A batch, whose making reads."""

    def __init__(self, read):
        self.__arrow_c_array__ = lambda: read() and BATCH.__arrow_c_array__()


class Dropped(list):
    """An iterator whose end reads."""

    def __init__(self, read):
        super().__init__([BATCH, BATCH])
        self.read = read

    def __iter__(self):
        return self

    def __next__(self):
        if not self:
            raise StopIteration
        return self.pop()

    def __del__(self):
        self.read()


def test_code_around_a_source_that_reads_its_reader_is_refused(ext):
    held, refused = [], []

    def read():
        try:
            return next(held[0])
        except ValueError as error:
            refused.append("waiting for the source that reads it" in str(error))
            return True

    def inner():
        yield BATCH
        read()
        yield BATCH

    for source in (lambda: iter([BATCH, Item(read)]), lambda: Dropped(read), lambda: iter([BATCH, ext.echo_reader(inner())])):
        held[:] = [ext.echo_reader(source())]
        held[0].read_all()
        held[0].close()
        assert refused == [True]
        held.clear(), refused.clear()


def test_exception_of_a_source_of_another_call_is_not_raised(ext):
    with ext.echo_reader(fails(Boom("of this source"))) as reader:
        next(reader)
        with pytest.raises(ValueError, match="invalid: a value"):
            ext.fail("value")
        with pytest.raises(Boom):
            next(reader)


@pytest.mark.parametrize("text", ["", "a\0b", "\udc80", "x" * 70_000, "ä" * 70_000], ids=["empty", "NUL", "surrogate", "long", "long UTF-8"])
def test_exceptions_with_any_text_are_recognised(ext, text):
    error = Boom(text)
    for read in (ext.count, lambda source: ext.echo_reader(source).read_all()):
        with pytest.raises(Boom) as raised:
            read(fails(error))
        assert raised.value is error
        error.__traceback__ = raised = None


def test_failure_of_go_with_the_text_of_an_exception(ext):
    """The function has read a source that failed, and fails for a reason of its own."""
    with pytest.raises(arrowdevice.Error, match="^Boom$"):
        ext.read_and_fail(fails(Boom()), "Boom")


def test_exception_that_comes_after_the_call(ext):
    """The function has kept its argument. Nobody raises the exception, and nothing holds it."""
    raised = []

    def later():
        yield BATCH
        error = Boom()
        raised.append(weakref.ref(error))
        raise error

    ext.read_later(later())
    assert settled() == {}
    gc.collect()
    assert raised[0]() is None


def test_consumers_see_the_text_of_an_exception(ext):
    with pytest.raises(polars.exceptions.ComputeError, match="Boom: größer"):
        polars.DataFrame(ext.echo_reader(fails(Boom("größer"))))
    with pytest.raises(OSError, match="Boom: größer"):
        pa.table(ext.echo_reader(fails(Boom("größer"))))


def test_item_whose_stream_has_no_get_last_error(ext):
    class Item:
        def __arrow_c_stream__(self, requested_schema=None):
            capsule = pa.RecordBatchReader.from_batches(BATCH.schema, fails(Boom("unheard"))).__arrow_c_stream__()
            abi.ArrowArrayStream.from_address(abi.capsule_pointer(capsule, "arrow_array_stream")).get_last_error = None
            return capsule

    with ext.echo_reader([Item()]) as reader:
        assert next(reader).to_pyarrow() == BATCH
        with pytest.raises(ValueError, match=r"source\[0\]: .*invalid argument \(errno 22\)"):
            next(reader)


def test_text_of_an_exception_that_has_none(ext):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    with pytest.raises(Mute):
        ext.count(fails(Mute()))


@pytest.mark.parametrize(
    "item, error, text",
    [
        (5, TypeError, "source[1]: int is no record batch"),
        (pa.array([1]), TypeError, "source[1]: a column is no table or record batch"),
        (pa.record_batch({"a": ["x"]}), ValueError, 'source[1]: has another schema than the first batch: field "a" has the type utf8, not int64'),
        (pa.record_batch({"b": [1]}), ValueError, 'source[1]: has another schema than the first batch: field 0 has the name "b", not "a"'),
        (pa.record_batch({"a": [1], "b": [1]}), ValueError, "source[1]: has another schema than the first batch: it has 2 fields, not 1"),
        (
            pa.record_batch({"a": pa.array([1]).dictionary_encode()}),
            ValueError,
            'source[1]: has another schema than the first batch: field "a" has the type dictionary<values=int64',
        ),
    ],
    ids=["int", "array", "type", "name", "fields", "dictionary"],
)
def test_items_that_do_not_fit(ext, item, error, text):
    with pytest.raises(error) as raised:
        ext.count([BATCH, item])
    assert text in str(raised.value)


def test_dictionaries_are_compared(ext):
    numbers, texts = (pa.record_batch({"a": pa.array(v).dictionary_encode()}) for v in ([1], ["x"]))
    assert ext.count([texts, texts]) == 2
    with pytest.raises(ValueError, match="has the type dictionary<values=int64, .* not dictionary<values=utf8"):
        ext.count([texts, numbers])


def test_generators_end_with_the_stream(ext):
    ended = []
    source = watched(ended)
    ext.ignore(source)
    assert settled() == {}
    assert len(ended) == 1
    assert source.gi_frame is None

    class Iterator:
        closed = False

        def __iter__(self):
            return self

        def __next__(self):
            return BATCH

        def close(self):
            self.closed = True

    iterator = Iterator()
    ext.ignore(iterator)
    assert not iterator.closed, "it is no generator, and may be used afterwards"


def test_sources_when_another_argument_is_bad(ext):
    """One that C refuses leaves the source alone; one that Go refuses ends it."""
    ended = []
    source = watched(ended)
    with pytest.raises(TypeError, match="argument values"):
        ext.read_two(source, object())
    assert ext.count(source) == 4
    with ext.echo_array(pa.array([1])) as column, pytest.raises(TypeError, match="argument batch: a RecordBatch is wanted"):
        ext.echo_two(watched(ended), column)
    assert len(ended) == 2
    assert ext._library.module.sources() == 0


class WithoutSchema:
    """A producer whose get_schema fails."""

    def __init__(self, table):
        self._capsule = table.__arrow_c_stream__()
        stream = abi.ArrowArrayStream.from_address(abi.capsule_pointer(self._capsule, "arrow_array_stream"))
        self._fail = abi.GET(lambda *_: errno.EIO)
        stream.get_schema = ctypes.cast(self._fail, ctypes.c_void_p).value

    def __arrow_c_stream__(self):
        return self._capsule


def test_batches_of_streams_are_released(ext):
    """No capsule owns them: one of another schema than the first, and the first of a source that is abandoned."""

    def table(name):
        return pa.table({name: pa.array(range(1000))})

    with pytest.raises(ValueError, match=r"source\[1\]: has another schema"):
        ext.count([table("a"), table("b")])
    with ext.echo_array(pa.array([1])) as column, pytest.raises(TypeError, match="a RecordBatch is wanted"):
        ext.echo_two([table("a")], column)
    with pytest.raises(OSError, match="input/output error"):
        ext.count([WithoutSchema(table("a"))])


class WithoutItems(list):
    """It tells its schema, the releases of which are counted."""

    def __init__(self):
        self._capsule = BATCH.schema.__arrow_c_schema__()
        self.releases = abi.count_releases(abi.ArrowSchema.from_address(abi.capsule_pointer(self._capsule, "arrow_schema")))
        self.schema = self

    def __arrow_c_schema__(self):
        return self._capsule


def test_schemas_of_sources_without_items_are_released(ext):
    taken, abandoned = WithoutItems(), WithoutItems()
    assert ext.count(taken) == 0
    assert taken.releases.count == 1
    with pytest.raises(TypeError, match="argument values"):
        ext.read_two(abandoned, object())
    assert abandoned.releases.count == 0, "it was not asked"


def test_sources_are_not_kept(ext):
    class Items(list):
        pass

    items = Items([BATCH] * 3)
    reference = weakref.ref(items)
    with ext.echo_reader(items) as reader:
        del items
        assert len(reader.read_all()) == 3
    assert settled() == {}
    gc.collect()
    assert reference() is None


def test_source_that_calls_the_library(ext):
    def generate():
        for i in range(3):
            yield ext.counters(2, i + 1)

    assert ext.count(generate()) == 12


def test_sources_in_many_threads(ext):
    totals, rounds = [], 20

    def work(_):
        for _ in range(rounds):
            totals.append(ext.count(BATCH for _ in range(10)))

    on_threads(4, work)
    assert totals == [20] * 4 * rounds


def test_exception_behind_a_copy_of_the_reader(ext):
    """Which drops its source before it says why that failed."""
    for read in (list, lambda reader: reader.read_all(), ext.count):
        error = Boom("mine")
        with pytest.raises(Boom) as raised:
            read(ext.map_copies(fails(error)))
        assert raised.value is error
        raised = error.__traceback__ = None


class Keeps:
    """An iterator that keeps its exception, whose traceback has the frame of who reads it."""

    def __iter__(self):
        return self

    def __next__(self):
        if hasattr(self, "error"):
            raise self.error
        self.error = Boom()
        return BATCH


def test_iterator_that_keeps_its_exception(ext):
    def read():
        iterator = Keeps()
        reader = ext.echo_reader(iterator)
        with pytest.raises(Boom):
            reader.read_all()
        return weakref.ref(iterator)

    reference = read()
    gc.collect()
    assert reference() is None
