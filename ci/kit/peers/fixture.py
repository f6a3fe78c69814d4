"""What holds for every check: at its end nothing of Go's is left, and on the simulator nothing was unordered."""

import contextlib
import gc
import time

import simulator

import golang
import work


def begin(peer):
    """Makes what Go and the peer keep for the life of the process."""
    golang.open_gpu()
    peer.open()
    gc.collect()
    gc.freeze()  # a collection of all that the libraries imported takes as long as a kernel


class Left:
    """What a check has left behind: a text, and whether another check can be made in this process."""

    problem, usable, racy = None, True, False


_current = Left()


def expect_races():
    """Tells that the check leaves a wait out on purpose."""
    _current.racy = True


@contextlib.contextmanager
def nothing_left(peer):
    global _current
    gc.collect()
    _current = left = Left()
    before, violations = _settled(peer, None), _violations()
    yield left
    try:
        peer.forget()
        gc.collect()
        work.synchronize()
        after = _settled(peer, before)
        work.forget()
    except Exception as e:
        left.problem, left.usable = f"afterwards {type(e).__name__}: {e}", False
        return
    if after != before:
        left.problem = f"left behind in Go: {after}, before: {before}"
    elif not left.racy and (new := [v for v in _violations() if v not in violations]):
        left.problem = f"unordered: {new[-1]}"


def _settled(peer, want):
    """The live objects in Go, as soon as they are the wanted ones, or after ten seconds."""
    deadline = time.monotonic() + 10
    while True:
        peer.settle()
        now = golang.alive()
        if want is None or now == want or time.monotonic() > deadline:
            return now
        time.sleep(0.005)


def _violations():
    if not simulator.is_simulator:
        return []
    simulator.library.cudasim_drain()
    return simulator.report()["violations"]
