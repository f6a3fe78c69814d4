"""Opening a ticket."""

from __future__ import annotations

import _thread
import errno
import hashlib
import os
import select
import socket
import threading
import time
from array import array

from . import cdata, gpu, memory
from .errors import BadTicket, OtherUser, OwnerGone, Used
from .event import Event
from .loop import loop
from .peer import is_same_user, peer_of
from .ticket import CPU, CUDA, Node, Ticket, require_linux
from .wire import until
from .worker import releaser, worker

TYPE_CHECKING = False  # which checkers take for true

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Self

REQUEST = b"arrowdevice share 1\n"
ACCEPTED, EXHAUSTED, MISMATCHED, OTHER_USER = b"\1", b"\2", b"\3", b"\4"
RELEASED, FAILED = b"r", b"f"
MAX_FILES = 253  # descriptors in one message (SCM_MAX_FD)

_MAX_TIMEOUT = 2_000_000  # seconds: poll has no more
_WAIT_FOR_OWNER = 0.05  # seconds, after a failure


class _Connection:
    """The opener's end. All but connect(), receive() and wait() is called where no signal handler runs. gone is a list of the function
    to be called if the owner exits, or an empty one: what a program hands over ends on the releaser, which clears the list."""

    def __init__(self, gone):
        self._gone = gone
        self.socket, self.files, self.pid = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), [], os.getpid()
        self.socket.setblocking(False)
        self._is_connected, self._open, self._closed = False, True, Event()

    def connect(self, name, deadline):
        """Connects to the owner. It retries while the backlog of the socket is full."""
        while True:
            try:
                return worker.run(self._connect, name)
            except BlockingIOError:
                time.sleep(min(0.005, _left(deadline)))

    def _connect(self, name):
        try:
            self.socket.connect(b"\0" + name)
        except ConnectionRefusedError as error:
            text = "the owner of the batch has exited, or shares nothing any more, as when its only ticket was opened as often as it may be (openers)"
            raise OwnerGone(f"share: open: {text}: {error}") from None
        if not is_same_user(peer_of(self.socket)[1]):  # before anything of the ticket is sent
            raise OtherUser("share: open: the owner belongs to another user")
        self._is_connected = True

    def receive(self, ticket, data, deadline):
        """Requests the batch, and receives the reply and the files."""
        refused = None
        try:
            self.socket.send(REQUEST + ticket.token + hashlib.sha256(data).digest())
        except (BrokenPipeError, ConnectionResetError) as error:  # the owner has replied and closed its end
            refused = error
        for last in (False, True):
            self._wait_for_reply(deadline)
            try:
                reply, flags = worker.run(self._receive)
                break
            except ConnectionResetError as error:  # the owner did not read the request; its reply follows this error
                if last:
                    raise OwnerGone(f"share: open: the owner of the batch has exited: {error}") from None
        if not reply:
            raise OwnerGone("share: open: the owner of the batch closed the connection") from refused
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, f"share: open: this process has free descriptors for only {len(self.files)} files")
        return reply

    def _wait_for_reply(self, deadline):
        reply = select.poll()
        reply.register(self.socket, select.POLLIN)
        while not reply.poll(1000 * _left(deadline)):
            pass

    def _receive(self):
        reply, rights, flags, _ = self.socket.recvmsg(1, socket.CMSG_SPACE(4 * MAX_FILES), socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array("i")
                numbers.frombytes(content[: len(content) // 4 * 4])
                self.files += numbers
        return reply, flags

    def close_files(self):
        while self.files:
            os.close(self.files.pop())

    def end(self, outcome):
        """Notifies the owner that this process no longer uses the batch, and closes the connection."""
        self._open = False
        self.close_files()
        if self.pid != os.getpid():  # a child that was forked: the batch is its parent's
            self.socket.close()
            self._forget_gone()
            return
        if not self._is_connected:
            loop.call(self._close)
            return
        try:
            self.socket.settimeout(5)
            self.socket.send(outcome)
            if outcome == FAILED:
                self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        loop.call(self._close_after_owner if outcome == FAILED else self._close)

    def _close_after_owner(self):
        """Closes the connection once the owner has closed its end: then the ticket can be opened again."""
        loop.forget(self.socket)
        loop.watch(self.socket, self._close_at_end, _WAIT_FOR_OWNER, self._close)

    def _close_at_end(self):
        try:
            is_reply = self.socket.recv(1, socket.MSG_DONTWAIT)  # one that nobody has waited for; its files are dropped
        except OSError:
            is_reply = False
        if not is_reply:
            self._close()

    def _close(self):
        loop.forget(self.socket)
        self.socket.close()
        self._forget_gone()
        self._closed.set()

    def _forget_gone(self):
        if self._gone:
            releaser.request(self._gone.clear)

    def wait(self):
        """Waits until the connection is closed, after a failure."""
        self._closed.wait(_WAIT_FOR_OWNER)

    def watch(self):
        """Calls the function in gone, on a thread of its own, if the owner closes the connection before this process does."""

        def ready():
            loop.forget(self.socket)
            if self._open and self._gone:
                thread = threading.Thread(target=self._gone[0], name="arrowdevice.share owner_gone", daemon=True)
                _thread.start_new_thread(thread.start, ())  # which waits for threading's lock

        if self._open:
            loop.watch(self.socket, ready)


def _left(deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("share: open: the owner does not answer")
    return left


class _Opened:
    """The memory of another process. It is closed after the last release of those that retain it. No signal handler runs on the threads
    that open, release and close it."""

    def __init__(self, device, gone):
        self.outcome, self.mappings, self.device = FAILED, [], device
        self._holders, self._open = set(), True  # changed by single operations, which no other thread can interrupt
        self._unclosed = [True]  # popped once, by the thread that is first
        self.connection = _Connection(gone)

    def open(self, ticket):
        """Maps the files, or opens the memory of a GPU, and watches the owner."""
        if self.device is not None:
            self.device.open(ticket)
        else:
            files = self.connection.files
            if len(files) != len(ticket.regions):
                raise OSError(errno.EPROTO, f"share: open: the owner has sent {len(files)} files, want {len(ticket.regions)}")
            if ticket.event:
                raise BadTicket("share: ticket: event = one, want none for host memory")
            for i, region in enumerate(ticket.regions):
                try:
                    self.mappings.append((memory.map_received(files[i], region.size), region.size))
                except OSError as error:
                    raise OSError(error.errno, f"share: open: regions[{i}]: {error.strerror}") from None
        self.connection.close_files()
        loop.call(self.connection.watch)

    def address(self, region, offset):
        """The address of a place in a region; NULL in region 0."""
        if not region:
            return 0
        starts = self.device.addresses if self.device is not None else [at for at, _ in self.mappings]
        return starts[region - 1] + offset

    def retain(self, key):
        """retain and release may run on several threads: one of the two sees what the other has done first."""
        self._holders.add(key)
        if not self._open:
            self.release(key)
            raise ValueError("share: the batch was closed")

    def release(self, key):
        self._holders.discard(key)
        if not self._holders:
            self._open = False
            if not self._holders:  # else another thread has retained it meanwhile
                self.close()

    def close(self):
        try:
            self._unclosed.pop()
        except IndexError:
            return
        if self.device is not None:
            self.device.close(self.connection.end, self.outcome)
            return
        while self.mappings:
            memory.unmap(*self.mappings.pop())
        self.connection.end(self.outcome)


class _HostArrays:
    """The protocol of memory that the CPU can access. Other batches do not have it: a consumer would read their memory."""

    __slots__ = ()

    def __arrow_c_array__(self, requested_schema: object | None = None, **kwargs: Any) -> tuple[object, object]:
        """Capsules "arrow_schema" and "arrow_array"."""
        self._check_requested(requested_schema, kwargs)
        struct = cdata.ArrowArray()
        return worker.run(self._capsules, struct, struct, b"arrow_array")


if TYPE_CHECKING:  # which cannot know where memory is, and so sees the protocol on all batches
    _SeenArrays = _HostArrays
else:
    _SeenArrays = object


class RecordBatch(_SeenArrays):
    """A batch that another process shares, in the same memory: open() makes it. Consumers take it by the Arrow PyCapsule interface.
    What they have taken stays valid after close(); the memory is closed, and the owner notified, with the last of it."""

    __slots__ = ("_opened", "_ticket", "__weakref__")

    def __init__(self, opened, ticket):
        self._opened, self._ticket = opened, ticket
        opened.retain("batch")

    def close(self) -> None:
        """Ends this object. A second call does nothing."""
        worker.run(self._close)

    def _close(self):
        opened, self._opened = self._opened, None
        cdata.sweep()
        if opened is not None:
            opened.release("batch")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._opened is None

    def __len__(self) -> int:
        return self._ticket.rows

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._ticket.rows

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [f.name.decode("utf-8", "replace") for f in self._ticket.schema.children]

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """That of the batch; the schema has its own."""
        return dict(self._ticket.metadata)

    @property
    def device(self) -> str:
        """Where the memory is: "cpu", or a GPU of this process such as "cuda:0"."""
        device = self._memory().device
        return "cpu" if device is None else f"cuda:{device.ordinal}"

    def __repr__(self) -> str:
        if self.closed:
            return "<arrowdevice.share.RecordBatch: closed>"
        return f"<arrowdevice.share.RecordBatch: {len(self)} rows of {', '.join(self.names)} on {self.device}>"

    def __reduce__(self):
        raise TypeError("a RecordBatch cannot be pickled: send its ticket to the other process")

    def _memory(self):
        if self._opened is None:
            raise ValueError("share: the batch was closed")
        return self._opened

    def __arrow_c_schema__(self) -> object:
        """A capsule "arrow_schema"."""
        self._memory()
        return worker.run(self._schema)

    def _schema(self):
        loop.start()
        return cdata.capsule(cdata.export_schema(self._ticket.schema), b"arrow_schema")

    def __arrow_c_device_array__(self, requested_schema: object | None = None, **kwargs: Any) -> tuple[object, object]:
        """Capsules "arrow_schema" and "arrow_device_array". A GPU's has the owner's event, which is complete when its work is
        done. A requested schema must have as many fields; the consumer casts."""
        self._check_requested(requested_schema, kwargs)
        opened, struct = self._memory(), cdata.ArrowDeviceArray()
        struct.device_type, struct.device_id = CPU, -1
        if opened.device is not None:
            struct.device_type, struct.device_id = CUDA, opened.device.ordinal
            struct.sync_event = opened.device.event_address()
        return worker.run(self._capsules, struct, struct.array, b"arrow_device_array")

    def _check_requested(self, requested, keywords):
        unknown = sorted(name for name, value in keywords.items() if value is not None)
        if unknown:
            raise NotImplementedError(f"unsupported keyword arguments: {', '.join(unknown)}")
        has = len(self._ticket.schema.children)
        if requested is not None and (count := cdata.count_fields(requested)) != has:
            raise ValueError(f"requested_schema has {count} fields, not {has}")

    def _capsules(self, struct, array_, name):
        t, opened = self._ticket, self._memory()
        cdata.sweep()
        root = Node(length=t.rows)
        root.buffers, root.children = [(0, 0)], t.columns
        opened.retain(keep := object())
        try:
            loop.start()
            cdata.export_array(root, t.schema, opened, array_)
            result = (self.__arrow_c_schema__(), cdata.capsule(struct, name))
            loop.call(int)  # it looks after the capsules
        except BaseException:
            cdata.release(array_)
            raise
        finally:
            opened.release(keep)
        return result


class _HostRecordBatch(RecordBatch, _HostArrays):
    __slots__ = ()


def _check_arguments(ticket, timeout, owner_gone):
    if not isinstance(ticket, (bytes, bytearray, memoryview)):
        raise TypeError(f"share: open: ticket = {type(ticket).__name__}, want bytes")
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"share: open: timeout = {type(timeout).__name__}, want seconds")
    if not timeout <= _MAX_TIMEOUT:
        raise ValueError(f"share: open: timeout = {timeout}, want at most {_MAX_TIMEOUT} seconds")
    if owner_gone is not None and not callable(owner_gone):
        raise TypeError(f"share: open: owner_gone = {type(owner_gone).__name__}, want a function")


def open(ticket: bytes, *, timeout: float = 15.0, owner_gone: Callable[[], object] | None = None) -> RecordBatch:
    """The batch that another process shares. It takes at most timeout seconds (TimeoutError): to wait for the owner, and to
    decode the ticket.

    owner_gone is called once, on a thread of its own, if the owner exits before the batch is released. Host memory stays valid;
    the contents of memory of a GPU are undefined from then on.

    A ticket that is invalid or cannot be opened is an error of this package, before memory is touched. If the memory cannot be
    opened, which is an OSError, the ticket can be opened again once the owner has been notified."""
    require_linux("open")
    _check_arguments(ticket, timeout, owner_gone)
    deadline = time.monotonic() + timeout
    with until(deadline):
        t = Ticket.decode(ticket)
    batch = worker.run(_begin, t, [] if owner_gone is None else [owner_gone])
    opened = batch._opened
    try:
        opened.connection.connect(t.socket, deadline)
        reply = opened.connection.receive(t, ticket, deadline)
        if reply == EXHAUSTED:
            raise Used("share: open: the ticket was closed, or opened as often as it may be (openers)")
        if reply == MISMATCHED:
            raise BadTicket("share: open: this is not the ticket that the owner has issued")
        if reply == OTHER_USER:
            raise OtherUser("share: open: the owner belongs to another user")
        if reply != ACCEPTED:
            raise BadTicket(f"share: open: the owner replied {reply[0]}")
        with until(deadline):
            t.decode_rest()
        worker.run(opened.open, t)
    except BaseException:
        batch.close()
        opened.connection.wait()
        raise
    opened.outcome = RELEASED
    return batch


def _begin(ticket, gone):
    """The batch of a ticket, without its memory."""
    releaser.start()
    try:
        ticket.check_owner()
        device = gpu.find(ticket.device_uuid) if ticket.device_type == CUDA else None
        loop.start()
    except BaseException:
        releaser.request(gone.clear)
        raise
    batch = (RecordBatch if device is not None else _HostRecordBatch)(_Opened(device, gone), ticket)
    worker.at_end(batch).append((batch._opened.release, "batch"))
    return batch
