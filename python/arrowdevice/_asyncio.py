"""Calls that asyncio waits for. Go writes the numbers of calls that have ended to a pipe; it never calls Python."""

from __future__ import annotations

import asyncio
import os
import struct

_NUMBER = struct.Struct("=q")


class _Pipe:
    """A pipe of one event loop and one library, while calls are in progress."""

    def __init__(self, loop):
        self._loop, self._waiting = loop, {}
        self._reader, self._writer = os.pipe()
        for end in self._reader, self._writer:  # Go tries again later when the pipe is full
            os.set_blocking(end, False)
        try:
            loop.add_reader(self._reader, self._read)
        except BaseException:
            self._close()
            raise

    def add(self, call):
        """A future of the end of a call."""
        future = self._loop.create_future()
        self._waiting[call.number] = future
        call.notify(self._writer)
        return future

    def remove(self, number):
        """Forgets a call that ended or was cancelled, and reports whether it was the last."""
        self._waiting.pop(number, None)
        if self._waiting:
            return False
        if not self._loop.is_closed():
            self._loop.remove_reader(self._reader)
        self._close()
        return True

    def _close(self):
        os.close(self._reader)
        os.close(self._writer)

    def _read(self):
        try:
            data = os.read(self._reader, _NUMBER.size * 512)
        except BlockingIOError:
            return
        for (number,) in _NUMBER.iter_unpack(data):
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(None)


async def run(call, request):
    """The value of a call, or a Failure. The caller abandons the call if this raises, as it does when the task is
    cancelled."""
    if not call.start(request, 0):
        await _ended(call)
    return call.result()


async def _ended(call):
    number, loop, pipes = call.number, asyncio.get_running_loop(), call.pipes
    pipe = pipes.get(loop)
    if pipe is None:
        pipe = pipes[loop] = _Pipe(loop)
    try:
        await pipe.add(call)
        call.wait(-1)
    except BaseException:
        call.abandon()  # before the pipe closes: nothing is written to it after that
        raise
    finally:
        if pipe.remove(number):
            del pipes[loop]
