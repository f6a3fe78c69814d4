"""The checks of one peer: child.py NAME DONE, where DONE is how many were made by processes before this one."""

import faulthandler
import importlib
import os
import re
import sys
import traceback

SIMULATED = bool(os.environ.get("KIT_SIMULATED"))


class Skip(Exception):
    """A check that cannot be made here; the text says why."""


def main():
    faulthandler.enable()
    name, done = sys.argv[1], int(sys.argv[2])
    os.environ["NUMBA_CUDA_DRIVER"] = os.environ["CDEVICE_CUDA_DRIVER"]
    # Queues of the hardware. Streams share them, and one that shares that of held work waits for it. The default is 8.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    import work  # without NumPy and the library of Go functions nothing can be checked: that is no skip
    import golang  # noqa: F401

    work.begin()
    try:
        peer = importlib.import_module("with_" + name).Peer()
    except (ImportError, OSError, Skip) as e:  # OSError: a library that the package needs
        print(f"skip {name}: {type(e).__name__}: {first_line(e)}")
        print("@end")
        return 0
    if done == 0:
        print(f"{name}: {peer.version}")
    import checks
    import fixture

    fixture.begin(peer)
    wanted, machine = re.compile(os.environ.get("CHECKS", "")), os.environ.get("KIT_MACHINE", "")
    listed = [(label + machine, check) for label, check in checks.of(peer) if wanted.search(label)]
    for label, check in listed[done:]:
        print(f"@begin {label}")
        if not _run(peer, label, check, fixture):
            return 3
    print("@end")
    return 0


def _run(peer, label, check, fixture):
    """Makes a check. Reports whether the process is fit for another one."""
    problem = None
    with fixture.nothing_left(peer) as left:
        try:
            note = check()
        except Skip as e:
            print(f"skip {label}: {first_line(e)}")
            return True
        except BaseException as e:
            traceback.print_exc()
            problem = f"{type(e).__name__}: {first_line(e)} ({_place(e)})"
            del e
    if problem is None and left.problem:
        problem = left.problem
    if problem is not None:
        print(f"FAIL {label}: {problem}")
        return left.usable
    print(f"ok {label}" + (f" ({note})" if note else ""))
    return True


def _place(error):
    """The last line of the checks in a traceback."""
    here = os.path.dirname(os.path.abspath(__file__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.dirname(frame.filename) == here]
    checks = [frame for frame in frames if os.path.basename(frame.filename) not in ("compare.py", "hold.py")]
    return f"{os.path.basename(checks[-1].filename)}:{checks[-1].lineno}"


def first_line(error):
    return (str(error).strip() or repr(error)).splitlines()[0][:400]


if __name__ == "__main__":
    sys.modules["child"] = sys.modules["__main__"]
    status = main()
    sys.stdout.flush()
    # The peers' own ends are not what is checked.
    os._exit(status)
