"""Who keeps what, and until when, in both languages."""

import os
import queue
import signal
import threading

import pyarrow as pa
import pytest

import machines
from arrowdevice import share
from arrowdevice.share import worker

ROUNDS = 100


def test_killed_opener(owner):
    """It retains nothing."""
    ticket, before = owner.share(), None
    for language in machines.LANGUAGES:
        with machines.process(language) as survivor:
            other = machines.Process(language)
            other.open(ticket)
            other.kill()
            other.process.stdin.close()
            other.process.stdout.close()
            assert owner.ask("wait", 20) == "released"
            ticket = owner.share()
            survivor.open(ticket)
            survivor.ask("release")
            assert owner.ask("wait", 20) == "released"
            ticket = owner.share()
        before = before or owner.held()
    owner.holds_at_most(before)
    owner.ask("close")


@pytest.mark.parametrize("language", machines.LANGUAGES)
def test_killed_owner(opener, language):
    """Openers are told, and keep host memory."""
    owner = machines.Process(language)
    opener.open(owner.share("utf8", "valid"))
    owner.kill()
    owner.process.stdin.close()
    owner.process.stdout.close()
    assert opener.ask("gone") == "gone"
    assert opener.ask("compare", "utf8", "valid") == "equal"
    assert opener.ask("release") == "released"


@pytest.mark.parametrize("language", machines.LANGUAGES)
def test_owner_that_was_killed_before(opener, language):
    owner = machines.Process(language)
    ticket = owner.share()
    owner.kill()
    owner.process.stdin.close()
    owner.process.stdout.close()
    assert opener.refuses(ticket).name == "OwnerGone"


@pytest.mark.parametrize("language", machines.LANGUAGES)
def test_opener_that_exits_with_an_open_batch(owner, language):
    """It ends well, and the owner sees that."""
    ticket = owner.share()
    with machines.process(language) as opener:
        opener.open(ticket)
        if language == "python":
            opener.ask("keep")
    assert owner.ask("wait", 20) == "released"


def test_nothing_is_left(owner, opener):
    """After many batches both processes hold as much as before."""

    def once():
        opener.open(owner.share("list_utf8"))
        opener.ask("compare", "list_utf8", "nulls")
        opener.ask("release")
        assert owner.ask("wait", 20) == "released"

    once()
    before = owner.held(), opener.held()
    opener.open(owner.share("list_utf8"))
    opener.holds_at_most((before[1][0] + 1, before[1][1] + 1))  # a socket and a mapping: the file was closed
    opener.ask("release")
    owner.ask("wait", 20)
    for _ in range(ROUNDS):
        once()
    owner.holds_at_most(before[0])
    opener.holds_at_most(before[1])


def mappings():
    with open("/proc/self/maps") as maps:
        return maps.read().count("/memfd:arrowdevice")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("round", range(10))
def test_forked_child_frees_its_copies(round):
    """Those of memory of allocate(), once it has a thread of its own."""
    memory = share.allocate(1)
    machines.settle()
    pid = os.fork()
    if pid == 0:
        is_freed = False
        try:
            before = mappings()
            del memory
            share.allocate(1)
            machines.eventually(lambda: mappings() == before - 1)
            is_freed = True
        finally:
            os._exit(0 if is_freed else 1)
    assert os.waitpid(pid, 0)[1] == 0
    memory[0] = 1


class Anything:
    pass


def test_forked_child_of_a_busy_worker():
    """It frees what the parent has dropped, and does nothing else that the parent has requested."""
    made, done = worker.Worker(), []
    dropped, kept = Anything(), Anything()
    made.at_end(dropped).append((done.append, "end"))
    made.at_end(kept).append((done.append, "later end"))
    made._queue.put(worker._Call(done.append, ("request of the parent",), queue.SimpleQueue()))
    del dropped
    made.after_fork()
    made.run(done.append, "request of the child")
    assert done == ["end", "request of the child"]
    del kept
    made.run(int)
    assert done.pop() == "later end" and not made._ends


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("use", [lambda: share.allocate(10), lambda: share.share(pa.table({"a": [1]})).close()], ids=["allocate", "share"])
def test_children_that_are_forked_right_after_a_use(use):
    """They can use the package as well, whatever the parent's threads do at the time of the fork."""
    for _ in range(40):
        use()
        pid = os.fork()
        if pid == 0:
            is_done = False
            try:
                signal.alarm(machines.LIMIT)
                for _ in range(5):
                    use()
                is_done = True
            finally:
                os._exit(0 if is_done else 1)
        assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_closes_what_the_parent_is_closing(monkeypatch):
    """The locks of the parent's threads are not the child's."""
    shared, is_closing, may_close = share.share(pa.table({"a": [1]})), threading.Event(), threading.Event()

    def set_left(count, set_left=shared._offer._set_left):
        if os.getpid() == parent:
            is_closing.set()
            assert may_close.wait(machines.LIMIT)
        set_left(count)

    parent = os.getpid()
    monkeypatch.setattr(shared._offer, "_set_left", set_left)
    closer = threading.Thread(target=shared.close)
    closer.start()
    assert is_closing.wait(machines.LIMIT)
    pid = os.fork()
    if pid == 0:
        is_closed = False
        try:
            signal.alarm(machines.LIMIT)
            shared.close()
            shared.wait(machines.LIMIT)
            is_closed = True
        finally:
            os._exit(0 if is_closed else 1)
    status = os.waitpid(pid, 0)[1]
    may_close.set()
    closer.join()
    assert status == 0
