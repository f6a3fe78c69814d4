"""Sharing a batch: the socket of this process, and who has opened what."""

from __future__ import annotations

import functools
import hashlib
import numbers
import operator
import os
import socket
import threading
import time
from array import array

from . import peer, source
from .event import Event
from .loop import loop
from .opener import ACCEPTED, EXHAUSTED, FAILED, MISMATCHED, OTHER_USER, REQUEST
from .ticket import boot_id, require_linux, socket_name
from .worker import worker

TYPE_CHECKING = False  # which checkers take for true

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

# An opener sends its request within _HANDSHAKE seconds, or within _BUSY while more than half of _MAX_PENDING connections are
# pending. _EXIT bounds the wait for the exit of a process whose socket the system has closed.
_HANDSHAKE, _BUSY, _EXIT = 5.0, 0.2, 10.0
_MAX_PENDING = 256
_REQUEST_SIZE = len(REQUEST) + 16 + 32


class _Owner:
    """The offers of this process, by their tokens, and the socket that openers connect to. The socket belongs to the thread of the
    loop, but for its creation. The worker calls add(), and so no signal handler runs while it or another function is called."""

    def __init__(self):
        self.after_fork()

    def after_fork(self):
        for connection in getattr(self, "connections", ()):
            connection.close()
        self.lock = threading.RLock()
        self.by_token, self.name, self.listener = {}, b"", None
        self.connections, self.pending = set(), set()

    def add(self, taken, openers, ticket):
        """Offers a batch, and completes its ticket."""
        loop.start()
        offer = _Offer(taken, openers)
        shared = Shared(offer)
        worker.at_end(shared).append((offer.shared_is_gone,))
        with self.lock:
            if self.listener is None:
                self.start()
            self.by_token[offer.token] = offer
            ticket.socket = self.name
        ticket.token, ticket.boot = offer.token, boot_id()
        return shared

    def start(self):
        """Makes the socket. After an error, everything is as before."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            name = socket_name()
            listener.setblocking(False)
            listener.bind(b"\0" + name)
            listener.listen(4096)
            self.listener, self.name = listener, name
            self.connections.add(listener)
            loop.call(self.resume, listener)
        except BaseException:
            self.listener = None
            self.connections.discard(listener)
            listener.close()
            raise

    def remove(self, offer):
        with self.lock:
            self.by_token.pop(offer.token, None)
            self.stop_if_unused()

    def stop_if_unused(self):
        if not self.by_token and self.listener is not None:
            listener, self.listener = self.listener, None
            # Openers that connect from here on are refused, also before the thread of the loop comes to it.
            listener.shutdown(socket.SHUT_RDWR)
            loop.call(self.close, listener)

    def close(self, connection):
        loop.forget(connection)
        self.connections.discard(connection)
        connection.close()

    def resume(self, listener):
        """Accepts openers."""
        if listener is self.listener:
            loop.forget(listener)
            loop.watch(listener, functools.partial(self.accept, listener))

    def accept(self, listener):
        """Refuses processes of other users before it reads anything, so that they do not count as pending."""
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # for example, no descriptor is free
            time.sleep(0.01)
            return
        connection.setblocking(False)
        pid, user = peer.peer_of(connection)
        if not peer.is_same_user(user):
            _send(connection, OTHER_USER)
            connection.close()
            return
        self.connections.add(connection)
        self.pending.add(connection)
        if len(self.pending) >= _MAX_PENDING:  # the others stay in the backlog of the socket
            loop.forget(listener)
        seconds = _BUSY if len(self.pending) > _MAX_PENDING // 2 else _HANDSHAKE
        loop.watch(
            connection,
            functools.partial(self.serve, listener, connection, pid),
            seconds,
            functools.partial(self.refuse, listener, connection),
        )

    def refuse(self, listener, connection, reply=None):
        """Ends a connection without a batch."""
        self.pending.discard(connection)
        if reply:
            _send(connection, reply)
        self.close(connection)
        self.resume(listener)

    def serve(self, listener, connection, pid):
        """Reads the request of an opener, and replies."""
        try:
            request = connection.recv(_REQUEST_SIZE + 1)
        except OSError:
            request = b""
        text, token, digest = request[: len(REQUEST)], request[len(REQUEST) :][:16], request[len(REQUEST) + 16 :]
        if len(request) != _REQUEST_SIZE or text != REQUEST:
            self.refuse(listener, connection)
            return
        with self.lock:
            offer = self.by_token.get(token)
        reply = offer.admit(digest) if offer else EXHAUSTED
        if reply != ACCEPTED:
            self.refuse(listener, connection, reply)
            return
        if not _send(connection, ACCEPTED, offer.source.files()):
            self.refuse(listener, connection)
            offer.leave(True)
            return
        self.pending.discard(connection)
        loop.forget(connection)
        loop.watch(connection, functools.partial(self.ended, connection, pid, offer))
        self.resume(listener)

    def ended(self, connection, pid, offer):
        """Reads the last message of an opener."""
        last = b""
        for _ in range(2):
            try:
                last = connection.recv(1)
                break
            except ConnectionResetError:  # the opener did not read the reply; what it sent follows this error
                pass
            except OSError:
                break
        process = None if last else peer.open_process(connection, pid)
        self.close(connection)
        if process is None:
            offer.leave(last == FAILED)
            return

        # The system closes the sockets of a killed process while its memory may still be mapped.
        def exited():
            loop.forget(process)
            os.close(process)
            offer.leave(False)

        loop.watch(process, exited, _EXIT, exited)


def _send(connection, byte, files=()):
    """Sends a byte, which does not block, and files. It reports whether that worked."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", files))] if files else []
    try:
        connection.sendmsg([byte], rights)
        return True
    except OSError:
        return False


_owner = _Owner()
os.register_at_fork(after_in_child=_owner.after_fork)


class _Offer:
    """A batch and who may open it, under the lock of _owner, which a child of a fork has anew. No signal handler runs on the threads
    that change it."""

    def __init__(self, source, openers):
        self.source, self.left, self.openers = source, openers, 0
        self.token, self.ticket = os.urandom(16), b""
        self.is_closed = self.is_released = self.is_in_block = False
        self.opened, self.done = Event(), Event()
        self.ends_with_shared = True  # as no process can have the ticket

    def close(self):
        with _owner.lock:
            self.is_closed = True
            self._set_left(0)
        self._release_if_unused()

    def shared_is_gone(self):
        if self.ends_with_shared:
            self.close()

    def _set_left(self, count):
        self.left = count
        if count == 0:
            self.opened.set()

    def admit(self, digest):
        if hashlib.sha256(self.ticket).digest() != digest:
            return MISMATCHED
        with _owner.lock:
            if self.left == 0:
                return EXHAUSTED
            self.openers += 1
            self._set_left(self.left - 1)
            return ACCEPTED

    def leave(self, failed):
        """Ends admit. An opener that failed to open the memory does not count, unless the ticket was closed since."""
        with _owner.lock:
            self.openers -= 1
            if failed and not self.is_closed:
                self.left += 1
        self._release_if_unused()

    def _release_if_unused(self):
        with _owner.lock:
            if self.left or self.openers or self.is_released:
                return
            self.is_released = True
        _owner.remove(self)
        self.source.release(self.done.set)


class Shared:
    """A batch offered to other processes: share() makes it. It retains the data until the ticket was closed, or opened as often as
    allowed, and every opener has released its batch. Without this object the ticket stays valid once it was read, unless that was in a
    with block."""

    def __init__(self, offer):
        self._offer = offer

    @property
    def ticket(self) -> bytes:
        """The ticket, to be sent to another process by any means. Each process of this user that has it can open the batch, so keep
        it secret."""
        offer = self._offer
        offer.ends_with_shared = offer.is_in_block
        return offer.ticket

    @property
    def openers(self) -> int:
        """The number of processes that have the batch open."""
        return self._offer.openers

    def close(self) -> None:
        """Withdraws the ticket, which then cannot be opened. The data are released once every opener has released its batch: on
        another thread, before this call returns or after it. A second call does nothing."""
        worker.run(self._offer.close)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the data were released, at most timeout seconds: then it raises TimeoutError, and may be called again. Call it
        without a lock that a finalizer of the data takes."""
        offer = self._offer
        if offer.done.wait(_seconds("wait", timeout)):
            return
        if offer.is_released:
            raise TimeoutError("share: wait: until the producer of the data releases them")
        raise TimeoutError(f"share: wait: for {offer.openers} openers, and the ticket can be opened {offer.left} more times")

    def wait_opened(self, timeout: float | None = None) -> None:
        """Waits until the ticket was closed, or opened as often as allowed, at most timeout seconds (TimeoutError)."""
        if not self._offer.opened.wait(_seconds("wait_opened", timeout)):
            raise TimeoutError("share: wait_opened: until the ticket is opened")

    def __enter__(self) -> Self:
        self._offer.is_in_block = self._offer.ends_with_shared = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _seconds(function, timeout):
    """timeout, which is refused if threads cannot wait for so long."""
    if timeout is not None and not isinstance(timeout, numbers.Real):
        raise TypeError(f"share: {function}: timeout = {timeout!r}, want seconds or None")
    if timeout is not None and not timeout <= threading.TIMEOUT_MAX:
        raise ValueError(f"share: {function}: timeout = {timeout}, want at most {threading.TIMEOUT_MAX:.0f} seconds, or None")
    return timeout


def share(data: Any, *, openers: int = 1) -> Shared:
    """Issues a ticket for a record batch of any library: an object with __arrow_c_array__, or with __arrow_c_stream__, which is read
    to its end. A stream of several batches needs PyArrow, which combines them. The ticket can be opened openers times; an opener
    that fails to open the memory does not count.

    Buffers in memory of allocate() are not copied; all others are, once, to a file without a name. Of a slice, the texts of the rows
    before the first are copied as well, and what lies in nested columns.

    A batch is released here once all of it was copied, else on a thread of this package, which no call but wait() waits for: after
    the last opener, or an error of this call."""
    require_linux("share")
    if isinstance(openers, bool) or not hasattr(openers, "__index__"):
        raise TypeError(f"share: share: openers = {openers!r}, want an int")
    if (openers := operator.index(openers)) < 1:  # an int, as the threads run no code of the program
        raise ValueError(f"share: share: openers = {openers}, want 1 or more")
    field, taken = source.take(data)
    try:
        ticket = taken.describe(field)
        shared = worker.run(_owner.add, taken, openers, ticket)
    except BaseException:
        worker.run(taken.release)
        raise
    try:
        shared._offer.ticket = source.encode(ticket)
    except BaseException:
        shared.close()
        raise
    return shared
