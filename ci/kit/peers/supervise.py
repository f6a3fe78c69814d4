"""Runs the checks of each peer in a process of its own, and goes on after a check that crashed or did not end. A peer whose checks
all have a result is not started again. Exit status: 75 where checks are left for another run."""

import importlib.util
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

# In the order of their value.
PEERS = ["cupy", "torch", "driver", "numba", "jax", "nanoarrow", "pyarrow", "pairs"]

CHECK_SECONDS = 45  # for one check
START_SECONDS = 120  # for the import of a peer, with its first kernels
PEER_SECONDS = 110  # for all checks of a peer
PROCESSES = 6  # after which a peer is given up
BROKEN = 3  # the exit status of a process whose context is broken, for which another one goes on
LEFT = 75  # the exit status of this program where checks are left


def main():
    if importlib.util.find_spec("numpy") is None:
        say(f"skip peers: NumPy, which every check needs, is not installed for {sys.executable}")
        return 0
    wanted = os.environ.get("PEERS", "").split() or PEERS
    end = time.monotonic() + float(os.environ.get("KIT_SECONDS") or 480)
    complete = _Complete()
    bad = left = False
    for name in wanted:
        if name in complete:
            continue
        if end - time.monotonic() < 20:
            say(f"{name}: no time is left for it in this run")
            left = True
            continue
        peer = Peer(name, end - 5)
        peer.run()
        bad |= peer.failed
        left |= peer.left
        if not peer.left:
            complete.add(name)
    return LEFT if left else 1 if bad else 0


class _Complete:
    """The peers whose checks all have a result, by earlier runs in the same folder or this one."""

    def __init__(self):
        folder = os.environ.get("KIT_OUT")
        self._path = folder and os.path.join(folder, "complete")
        self._names = set()
        if self._path and os.path.exists(self._path):
            with open(self._path) as f:
                self._names.update(f.read().split())

    def __contains__(self, name):
        return name in self._names

    def add(self, name):
        self._names.add(name)
        if self._path:
            with open(self._path, "a") as f:
                print(name, file=f)


def say(line):
    print(line, flush=True)


class Peer:
    """The checks of one peer, over as many processes as they need. end is that of the section's time."""

    def __init__(self, name, end):
        self._name, self._end = name, end
        self._own_end = time.monotonic() + PEER_SECONDS
        self._done, self._ended = 0, False
        self.failed = self.left = False

    def run(self):
        for _ in range(PROCESSES):
            self._process()
            if self._ended or self.left:
                return
            if time.monotonic() > self._own_end:
                break
        say(f"FAIL {self._name}: given up, the checks that follow were not made")
        self.failed = True

    def _process(self):
        """Makes checks until the process ends: at the end of the list, or because of one of them."""
        with _errors() as errors:
            errors.write(f"== {self._name}\n")
            errors.flush()
            start = errors.seek(0, os.SEEK_END)
            command = [sys.executable, "-u", "child.py", self._name, str(self._done)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            current, reason = self._follow(process)
            try:
                process.wait(timeout=0 if reason else 30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if self.left:
                return
            if reason is None and process.returncode not in (0, BROKEN):
                reason = f"the process ended with {_status(process.returncode)}"
            if reason is not None:
                say(f"FAIL {current or self._name}: {reason}")
                _tail(errors, start)
                self.failed = True
                self._ended = self._ended or current is None  # it did not come to the checks

    def _follow(self, process):
        """Passes on what the process prints. The check that was running at its end, and why it had to end."""
        lines = queue.Queue()
        threading.Thread(target=_read, args=[process.stdout, lines], daemon=True).start()
        current, limit = None, START_SECONDS
        while True:
            now = time.monotonic()
            ends = {now + limit: f"it did not end in {limit} seconds", self._own_end: f"the time of {self._name} is over", self._end: None}
            try:
                line = lines.get(timeout=max(min(ends) - now, 0.1))
            except queue.Empty:
                reason = ends[min(ends)]
                self.left = reason is None
                return current, reason or "the time of this run is over"
            if line is None:
                return current, None
            if line.startswith("@begin "):
                current, limit = line[7:], CHECK_SECONDS
                self._done += 1
            elif line == "@end":
                self._ended = True
            else:
                self.failed |= line.startswith("FAIL ")
                say(line)


def _read(stream, lines):
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _status(code):
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _errors():
    """A file for what the processes print to standard error: one to keep, if there is a folder for such."""
    folder = os.environ.get("KIT_OUT")
    return open(os.path.join(folder, "peers.err"), "a+") if folder else tempfile.TemporaryFile("w+")


def _tail(errors, start):
    errors.seek(start)
    for line in errors.read()[-2500:].splitlines():
        say(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
