"""The checks of waits without the order of streams. Work is held until the values have been read, so they are wrong in every try:
if they are right in one, the check with the order proves nothing."""

import child
import fixture
import golang
import protocols
import work
from hold import Ended, Hold
from pending import copied_by_go, held_array, next_first, numbers

TRIES = 10
_REHEARSALS = 6  # two on each of three streams: the first may load kernels, and a stream share a queue with the held one
_SHORT = Hold.SECONDS / 6  # that work is held in a rehearsal


def go_without_wait(peer, protocol):
    """Go takes and reads an array that a kernel still writes. It is rehearsed with an array that is complete."""
    fixture.expect_races()

    def attempt(stream, rehearsal):
        with peer.on(stream):
            complete = peer.array(numbers(next_first()))
        first = next_first()
        with Hold(_SHORT if rehearsal else Hold.SECONDS) as held:
            array = held_array(peer, first, stream, held)
            taken = protocols.take(protocol, peer, complete if rehearsal else array, stream, ordered=False)
            if not rehearsal and not held.held():
                raise child.Skip(f"the peer waits for its work on the host when it hands it over: {held.milliseconds():.0f} ms")
            got = golang.numbers(taken)
            held.check(f"Go's read waited {_for(rehearsal)}")
            wrong = (got != numbers(first)).any()
        work.synchronize()
        del taken, array, complete
        peer.forget()
        return wrong

    return _tries(peer, attempt, AssertionError)


def peer_without_wait(peer, protocol):
    """The peer takes and reads an array to which Go's copy is pending. It is rehearsed with an array that is complete."""
    fixture.expect_races()

    def attempt(stream, rehearsal):
        complete = golang.on_device(numbers(next_first()))
        first = next_first()
        with Hold(_SHORT if rehearsal else Hold.SECONDS) as held:
            made = copied_by_go(first, held)
            if rehearsal and protocol.name == "cai":
                golang.address(made)  # makes the legacy default stream wait, as the array in question does
            source = complete if rehearsal else made
            view = protocols.give(protocol, peer, source, stream, ordered=False, held=held)
            held.check(f"the peer's import waited {_for(rehearsal)}")
            got = peer.read(view, stream).result()
            held.check(f"the peer's read waited {_for(rehearsal)}")
            wrong = (got != numbers(first)).any()
        work.synchronize()
        del view, source, made, complete
        peer.forget()
        return wrong

    return _tries(peer, attempt, child.Skip)


def _for(rehearsal):
    return "for all work of the device" if rehearsal else "for work that nothing told it of"


def _tries(peer, attempt, hidden):
    """Makes the attempts, on a stream on which nothing has waited for the held work in a rehearsal. If there is none, a missing
    wait cannot be seen, as another one hides it: that is an error of the kind hidden."""
    for k in range(_REHEARSALS):
        if k % 2 == 0:
            stream = peer.stream()
        try:
            attempt(stream, rehearsal=True)
            break
        except Ended as e:
            reason = str(e)
            peer.forget()
    else:
        raise hidden(f"a missing wait cannot be seen here: {reason}, in each of {_REHEARSALS} rehearsals")
    wrong = sum(bool(attempt(stream, rehearsal=False)) for _ in range(TRIES))
    if wrong < TRIES:
        raise AssertionError(f"the values were wrong in {wrong} of {TRIES} tries without the order of streams: they must be in all")
    return f"wrong in {wrong} of {TRIES} tries, as it must be"


def checks(protocol):
    return [("go without the wait", go_without_wait), ("peer without the wait", peer_without_wait)]
