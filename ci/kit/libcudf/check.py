"""check.py KIND FOLDERS GOLIB PASS [AFTER]: arrays of Go to a consumer in Python, and back.

KIND is pylibcudf, which takes them by from_arrow, or passing, which passes the structs on as they are. FOLDERS has the package
arrowdevice, and for pylibcudf the wheels, separated by colons. GOLIB is the Go library. PASS is import, cases (those behind
the job AFTER if it is given), slices, stream or threads.
"""

import os
import sys
import threading
import time

KIND, FOLDERS, GOLIB, PASS = sys.argv[1:5]
AFTER = sys.argv[5] if len(sys.argv) > 5 else ""
ROW = int(os.environ.get("KIT_ROW", "1000"))
DELAY = 1000  # microseconds for which the work that fills an array is held back
sys.path[:0] = FOLDERS.split(":")

SAME = 5  # lines with one reason
failures = repeated = 0
reasons = {}
imports = 0


def say(line):
    print(line.replace("\n", " "), flush=True)


def fail(name, reason):
    global failures, repeated
    failures += 1
    reasons[reason] = reasons.get(reason, 0) + 1
    if reasons[reason] > SAME:
        repeated += 1
        return
    say(f"FAIL {KIND}/{name}: {reason}")


def text(error):
    return f"{type(error).__name__}: {error}"


def progress(job):
    path = os.environ.get("KIT_PROGRESS")
    if path:
        with open(path, "w") as f:
            print(job, file=f)


class Passing:
    """Passes the structs of an object on."""

    def __init__(self, value):
        self.capsules = value.__arrow_c_device_array__()

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        return self.capsules


class OnHost:
    """Offers the host protocol of an object alone, so that it copies to the host."""

    def __init__(self, value):
        self.value = value

    def __arrow_c_array__(self, requested_schema=None):
        return self.value.__arrow_c_array__()


def importer(table):
    global imports
    imports += 1
    if KIND == "passing":
        return Passing
    import pylibcudf

    return (pylibcudf.Table if table else pylibcudf.Column).from_arrow


def is_table(job):
    return job.rsplit("/", 1)[1] in ("table", "cut")


class Refused(Exception):
    """ForCuDF refuses an array."""


class Different(Exception):
    """An array came back with other values."""


class Tally:
    def __init__(self):
        self.imports = self.pending = 0


def exchange(kit, job, tally):
    """Hands the array of a job over and takes it back. Returns the change of its type."""
    try:
        number, value = kit.make(job)
    except NotImplementedError as refusal:
        raise Refused(str(refusal)) from None
    try:
        kit.open_after(number, DELAY)
        taken = importer(is_table(job))(value)
        tally.imports += 1
        tally.pending += kit.is_held(number)
        return compare(kit, job, number, taken)
    finally:
        value.close()
        kit.end(number)


def compare(kit, job, number, taken):
    differs = kit.compare_batch if is_table(job) else kit.compare_array
    places = [("the device", taken)] if KIND == "passing" else [("the host", OnHost(taken)), ("the device", taken)]
    changed = ""
    for place, value in places:
        device, changed, difference = differs(number, value)
        if difference:
            raise Different(f"on {place}: {difference}")
        if ("cuda" in device) != (place == "the device"):
            raise Different(f"on {place}: the array is on {device}")
    return changed


def check_import(kit):
    import pylibcudf

    say(f"ok {KIND}/import: {pylibcudf.__file__}, Python {sys.version.split()[0]}")


def check_cases(kit):
    tally, counts, names, refused = Tally(), {}, {}, set()
    skipping = bool(AFTER)
    for job in kit.jobs():
        if skipping:
            skipping = job != AFTER
            continue
        progress(job)
        case = job.split("/")[0]
        try:
            names[case] = exchange(kit, job, tally) or names.get(case, "")
            counts[case] = counts.get(case, 0) + 1
        except Refused:
            refused.add(case)
        except Exception as error:
            fail(job, text(error))
    for case, count in counts.items():
        say(f"ok {KIND}/{case}: {count} arrays{names[case] and ', ' + names[case]}")
    say(f"{KIND}: ForCuDF refuses {len(refused)} cases, as for standin: {', '.join(sorted(refused))}")
    say(f"{KIND}: of {tally.imports} imports, {tally.pending} returned while the work that fills the array was held back")


def sliced(table, value, stop):
    """Rows 1 to stop of a table of pylibcudf, which then has offsets."""
    if KIND == "passing":
        return Passing(value[1:stop])
    import pylibcudf

    return pylibcudf.copying.slice(table, [1, stop])[0]


def check_slices(kit):
    """Slices that the consumer makes: Go imports arrays with offsets."""
    count = 0
    for job in kit.jobs():
        if not job.endswith("/nulls/table"):
            continue
        progress(job)
        try:
            number, value = kit.make(job)
            other, want = kit.make(job.replace("/table", "/cut"))
        except NotImplementedError:
            continue
        try:
            kit.open_after(number, DELAY)
            rows = kit.rows(number)
            part = sliced(importer(True)(value), value, rows - 1)
            _, _, difference = kit.compare_batch(other, part)
            if difference:
                raise Different(difference)
            count += 1
        except Exception as error:
            fail(f"slices/{job}", text(error))
        finally:
            value.close()
            want.close()
            kit.end(number)
            kit.end(other)
    say(f"ok {KIND}/slices: {count} tables")


def check_stream(kit):
    """Batch by batch: pylibcudf reads no streams of a device itself."""
    batches = 0
    with kit.numbered_stream(ROW) as stream:
        for batch in stream:
            table = importer(True)(batch)
            batch.close()
            difference = kit.compare_numbered(batches, table)
            if difference:
                return fail("stream", f"batch {batches}: {difference}")
            del table
            batches += 1
    if batches != ROW:
        return fail("stream", f"{batches} batches, want {ROW}")
    say(f"ok {KIND}/stream: {batches} batches of a stream on the device")


def check_threads(kit):
    """Threads that import, and others that release."""
    jobs = [job for job in kit.jobs() if "/nulls/" in job]
    errors, done = [], []
    at = iter(range(len(jobs)))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                i = next(at, None)
            if i is None:
                return
            try:
                done.append(released_elsewhere(kit, jobs[i]))
            except Refused:
                pass
            except Exception as error:
                errors.append((jobs[i], text(error)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for job, error in errors:
        fail(f"threads/{job}", error)
    if done:
        say(f"ok {KIND}/threads: {len(done)} arrays in 4 threads, released by others")


def released_elsewhere(kit, job):
    box = []
    try:
        number, value = kit.make(job)
    except NotImplementedError as refusal:
        raise Refused(str(refusal)) from None
    try:
        kit.open_after(number, DELAY)
        box.append(importer(is_table(job))(value))
        compare(kit, job, number, box[0])
        other = threading.Thread(target=box.clear)
        other.start()
        other.join()
    finally:
        value.close()
        kit.end(number)


def check_releases(kit, before):
    import gc

    for _ in range(100):
        gc.collect()
        now = kit.live()
        if now == before:
            return say(f"ok {KIND}/{PASS}.releases: as much is alive as before")
        # The wrappers of libcudf that pylibcudf uses take schemas, and release none of them.
        schemas = now["exported_blocks"] - before["exported_blocks"]
        if KIND == "pylibcudf" and 0 < schemas <= imports and now == {**before, "exported_blocks": now["exported_blocks"]}:
            return say(f"ok {KIND}/{PASS}.releases: as much is alive as before, besides {schemas} schemas: libcudf keeps them")
        time.sleep(0.05)
    fail(f"{PASS}.releases", f"alive: {now}, before: {before}")


def main():
    try:
        import arrowdevice

        kit = arrowdevice.load(GOLIB)
        passes = {"import": check_import, "cases": check_cases, "slices": check_slices, "stream": check_stream, "threads": check_threads}
        before = kit.live()
        passes[PASS](kit)
        check_releases(kit, before)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        fail(PASS, text(error))
    if repeated:
        say(f"FAIL {KIND}/{PASS}: {repeated} more with the same reasons")
    sys.stdout.flush()
    os._exit(1 if failures else 0)  # without the exit handlers of libraries, whose order is not ours


main()
