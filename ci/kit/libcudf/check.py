"""check.py CONSUMER FROM PASS [AFTER]: hands arrays of Go to a consumer, and what the consumer makes of them back to Go, which
compares.

CONSUMER is standin or passing, whose FROM is -, view or owning of the library FROM, or pylibcudf from the folders FROM, which
colons separate. PASS is one of

    load       loads the consumer, and prints the GPU and the version of CUDA
    cases      every array, one after the other; those behind the job AFTER, or from the case of JOB on if it is =JOB
    stream     as many batches in a row as the variable KIT_ROW says
    threads    four threads, each with a stream of its own; in Python's consumers, others release
    slices     tables that the consumer cuts
    structure  what the consumer makes of the structs alone, for which libcudf needs no GPU
    types      the same for arrays of every type that ForCuDF has not seen
    unwaited   an array without its event: what is read must be wrong, or the other passes prove nothing

The file that the variable KIT_PROGRESS names has the job in progress. Exit status: 4 where the GPU does nothing any more.
"""

import ctypes
import gc
import itertools
import os
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
KIND, FROM, PASS = sys.argv[1:4]
AFTER = sys.argv[4] if len(sys.argv) > 4 else ""
IN_PYTHON = KIND in ("passing", "pylibcudf")
sys.path[:0] = [HERE, *(FROM.split(":") if KIND == "pylibcudf" else [])]
os.environ["NUMBA_CUDA_DRIVER"] = os.environ.get("CDEVICE_CUDA_DRIVER") or "libcuda.so.1"

import consumers  # noqa: E402
import driver  # noqa: E402
import standin  # noqa: E402

ROW = int(os.environ.get("KIT_ROW", "1000"))
DELAY = 1000  # microseconds for which the work that fills an array is held back
SAME = 5  # lines with one reason
THREADS = 4
GPU_LOST = 4  # the exit status


class Refused(Exception):
    """ForCuDF refuses an array."""


class Different(Exception):
    """What is wrong with an array that a consumer has, or that came back."""


class Lines:
    """What this program prints."""

    def __init__(self):
        self._lock, self._reasons, self.failures = threading.Lock(), {}, 0

    def say(self, line):
        print(line.replace("\n", " "), flush=True)

    def ok(self, name, text):
        self.say(f"ok {KIND}/{name}: {text}")

    def fail(self, name, error):
        reason = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        with self._lock:
            self.failures += 1
            self._reasons[reason] = self._reasons.get(reason, 0) + 1
            if self._reasons[reason] <= SAME:
                self.say(f"FAIL {KIND}/{name}: {reason}")

    def end(self):
        repeated = sum(max(count - SAME, 0) for count in self._reasons.values())
        if repeated:
            self.say(f"FAIL {KIND}/{PASS}: {repeated} more with the same reasons")


def step(what, call):
    """Calls a function of a consumer, and names the step in its exceptions."""
    try:
        return call()
    except Exception as error:
        raise RuntimeError(f"{what}: {error}") from error


def progress(job):
    path = os.environ.get("KIT_PROGRESS")
    if path:
        with open(path, "w") as f:
            print(job, file=f)


def is_table(job):
    return job.rsplit("/", 1)[1] in ("table", "cut")


def case_of(job):
    return job.split("/")[0]


def needs_gpu(error):
    """Whether an exception of libcudf is about the GPU that is missing, and not about the structs."""
    return "CUDA error" in str(error)


class Check:
    """The passes of a consumer."""

    def __init__(self, kit, consumer, lines):
        self.kit, self.consumer, self.lines = kit, consumer, lines
        self.attempts = self.imports = self.pending = self.lost = 0

    def make(self, job):
        """The number of an exchange, and its array or batch."""
        try:
            number, value = self.kit.make(job)
        except NotImplementedError as refusal:
            raise Refused(str(refusal)) from None
        except Exception:
            self.lost += 1
            raise
        self.lost = 0
        return number, value

    def exchange(self, job, stream, elsewhere=False):
        """Hands the array of a job over and takes it back. Returns the change of its type."""
        number, value = self.make(job)
        try:
            self.kit.open_after(number, DELAY)
            taken = self.take(value, is_table(job), stream)
            self.pending += self.kit.is_held(number)
            compare = self.kit.compare_batch if is_table(job) else self.kit.compare_array
            try:
                return self.compare(taken, lambda back: compare(number, back))
            finally:
                if elsewhere:
                    release_elsewhere(taken)
                else:
                    taken.release()
                driver.call("cuStreamSynchronize", driver.handle(stream))
        finally:
            value.close()
            self.kit.end(number)

    def take(self, value, table, stream):
        self.attempts += 1
        taken = self.consumer.take(value, table, stream)
        self.imports += 1
        return taken

    def compare(self, taken, compare):
        """Compares what a consumer exports, on the host and on the device. Returns the change of the type."""
        faults = step("its faults", taken.faults)
        if faults:
            raise Different("; ".join(faults))
        changed = ""
        for place, export in ("the host", taken.host), ("the device", taken.device):
            back = step(f"its export to {place}", export)
            if back is None:
                continue
            device, changed, difference = compare(back)
            if difference:
                raise Different(f"on {place}: {difference}")
            if ("cuda" in device) != (place == "the device"):
                raise Different(f"on {place}: the array is on {device}")
        return changed

    def cases(self):
        jobs = self.kit.jobs()
        first = 0
        if AFTER.startswith("="):
            first = next(k for k, job in enumerate(jobs) if case_of(job) == case_of(AFTER[1:]))
        elif AFTER:
            first = jobs.index(AFTER) + 1
        names, refused = set(), set()
        with driver.stream() as stream:
            for case, of_case in itertools.groupby(jobs[first:], case_of):
                names.add(case)
                if self._case(case, of_case, stream):
                    refused.add(case)
        self.lines.say(f"{KIND}: ForCuDF refuses {len(refused)} of {len(names)} cases")
        if not self.pending and not IN_PYTHON:
            self.lines.fail("cases/pending", "each import waited")

    def _case(self, case, jobs, stream):
        """The arrays of one case, whose result is printed at once. Returns whether some were refused."""
        count, refusals, changes = 0, [], ""
        for job in jobs:
            progress(job)
            try:
                changes = self.exchange(job, stream) or changes
                count += 1
            except Refused as refusal:
                refusals.append(str(refusal))
            except Exception as error:
                self.lines.fail(job, error)
                if self.lost > 3:
                    os._exit(GPU_LOST)
        if count:
            self.lines.ok(case, f"{count} arrays{changes and ', ' + changes}")
        if refusals and KIND == "standin":
            part = f" ({len(refusals)} of {len(refusals) + count})" if count else ""
            self.lines.say(f"ok refused {case}{part}: {refusals[-1]}")
        return bool(refusals)

    def stream(self):
        """Batch by batch: pylibcudf reads no streams of a device itself."""
        batches = 0
        with self.kit.numbered_stream(ROW) as source, driver.stream() as stream:
            for batch in source:
                taken = self.take(batch, True, stream)
                batch.close()
                self.compare(taken, lambda back: self.kit.compare_numbered(batches, back))  # noqa: B023
                taken.release()
                batches += 1
        if batches != ROW:
            raise Different(f"{batches} batches, want {ROW}")
        self.lines.ok("stream", f"{batches} batches of a stream on the device")

    def threads(self):
        jobs = [job for job in self.kit.jobs() if "/nulls/" in job or "/sliced/" in job]
        at, lock, done = iter(2 * jobs), threading.Lock(), []

        def work():
            with driver.current_primary_context(), driver.stream() as stream:
                while self.lost <= 3:
                    with lock:
                        job = next(at, None)
                    if job is None:
                        return
                    try:
                        self.exchange(job, stream, elsewhere=IN_PYTHON)
                        done.append(job)
                    except Refused:
                        pass
                    except Exception as error:
                        self.lines.fail(f"threads/{job}", error)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if not done:
            raise Different("no array went through a thread")
        self.lines.ok("threads", f"{len(done)} arrays in {THREADS} threads{', released by others' if IN_PYTHON else ''}")

    def slices(self):
        """Slices that the consumer makes: Go imports arrays with offsets."""
        count = 0
        for job in self.kit.jobs():
            if not job.endswith("/nulls/table"):
                continue
            progress(job)
            try:
                number, value = self.make(job)
            except Refused:
                continue
            other, want = self.make(job.replace("/table", "/cut"))
            try:
                self.kit.open_after(number, DELAY)
                self.attempts += 1
                _, _, difference = self.kit.compare_batch(other, self.consumer.slice(value, self.kit.rows(number) - 1))
                if difference:
                    raise Different(difference)
                count += 1
            except Exception as error:
                self.lines.fail(f"slices/{job}", error)
            finally:
                value.close()
                want.close()
                self.kit.end(number)
                self.kit.end(other)
        if not count:
            raise Different("no table was cut")
        self.lines.ok("slices", f"{count} tables")

    def structure(self):
        counts = {}
        with driver.stream() as stream:
            for job in self.kit.jobs():
                progress(job)
                try:
                    number, value = self.make(job)
                except Refused:
                    continue
                try:
                    self.kit.open_after(number, 0)
                    taken = self.take(without_event(value), is_table(job), stream)
                    kind, faults = taken.structure()
                    for fault in faults:
                        self.lines.fail(f"structure/{job}", fault)
                    counts.setdefault(case_of(job), []).append(kind)
                    taken.release()
                except Exception as error:
                    if not needs_gpu(error):
                        self.lines.fail(f"structure/{job}", error)
                finally:
                    value.close()
                    self.kit.end(number)
        for case, kinds in counts.items():
            self.lines.ok(f"structure/{case}", f"{len(kinds)} arrays as {kinds[-1]}")

    def types(self):
        """What the consumer says to arrays of every type that did not go through ForCuDF, and which that it takes ForCuDF
        refuses."""
        taken_types, refused, stricter = 0, 0, []
        for job in self.kit.jobs():
            case = case_of(job)
            if job != f"{case}/nulls/column":
                continue
            progress(job)
            value = self.kit.make_raw(job)
            try:
                answer = "taken as " + self.type_of(without_event(value))
            except Exception as error:
                answer = "taken; the rest needs a GPU" if needs_gpu(error) else f"refused: {error}"
            if answer.startswith("refused"):
                refused += 1
            else:
                taken_types += 1
                stricter += [case] if self.refuses(job) else []
            self.lines.say(f"{KIND}: {case} ({value.type}): {answer}")
            value.close()
        self.lines.ok("types", f"{taken_types} types taken and {refused} refused without ForCuDF, see above")
        self.lines.say(f"{KIND}: taken, and refused by ForCuDF: {' '.join(stricter) or 'none'}")

    def type_of(self, value):
        """The type that the consumer takes an array for."""
        with driver.stream() as stream:
            taken = self.take(value, False, stream)
            kind, _ = taken.structure()
            taken.release()
            return kind

    def refuses(self, job):
        """Whether ForCuDF refuses the array of a job."""
        try:
            number, value = self.make(job)
        except Refused:
            return True
        value.close()
        self.kit.end(number)
        return False

    def unwaited(self):
        job, wrong = "int64/valid/column", []
        with driver.stream() as stream:
            self.exchange(job, stream)  # the first import loads code and allocates, which may wait for the GPU
            for _ in range(5):
                number, value = self.make(job)
                self.kit.open_after(number, 100 * DELAY)
                taken = self.take(without_event(value), False, stream)
                try:
                    _, _, difference = self.kit.compare_array(number, taken.host())
                except Exception as error:
                    difference = str(error)
                wrong += [difference] if difference else []
                taken.release()
                value.close()
                self.kit.end(number)
        if not wrong:
            raise Different("an array without its event is right, so that a missing wait would not be seen")
        self.lines.ok("unwaited", f"without its event an array is wrong in {len(wrong)} of 5 imports: {wrong[-1]}")

    def releases(self, before):
        """Fails unless as much is alive as before. Frees may be pending for a moment. The owning wrappers of libcudf, which
        pylibcudf uses, take schemas and release none of them: each import leaves one block, unless it is refused early."""
        for _ in range(100):
            now = live(self.kit)
            schemas = now["exported_blocks"] - before["exported_blocks"]
            if now == before:
                return self.lines.ok(f"{PASS}.releases", "as much is alive as before")
            keeps = KIND in ("owning", "pylibcudf") and 0 < schemas <= self.attempts
            if keeps and now == {**before, "exported_blocks": now["exported_blocks"]}:
                return self.lines.ok(f"{PASS}.releases", f"as much as before, besides {schemas} schemas: libcudf keeps them")
            time.sleep(0.05)
        self.lines.fail(f"{PASS}.releases", f"alive: {now}, before: {before}")


def without_event(value):
    """An object whose consumer does not learn of pending work. For an event, libcudf needs a GPU."""
    handed = consumers.Handed(value)
    handed.array.sync_event = None
    return handed


def release_elsewhere(taken):
    """Releases in another thread."""
    other = threading.Thread(target=taken.release)
    other.start()
    other.join()


def live(kit):
    gc.collect()
    return {**kit._library.ask(".stats"), **kit.live()}


def find_consumer():
    if KIND in ("view", "owning"):
        return consumers.Libcudf(KIND, FROM)
    return {"standin": standin.Standin, "passing": consumers.Passing, "pylibcudf": consumers.Pylibcudf}[KIND]()


def load():
    name = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, len(name), 0)
    version = driver.ask(ctypes.c_int, "cuDriverGetVersion")
    python = sys.version.split()[0]
    print(f"{name.value.decode()}, CUDA {version // 1000}.{version % 1000 // 10}, {KIND} loaded by Python {python}")


def run(lines):
    import arrowdevice

    driver.call("cuInit", 0)
    consumer = find_consumer()
    if PASS == "load":
        return load()
    with driver.current_primary_context():
        check = Check(arrowdevice.load(os.path.join(HERE, "libkit.so")), consumer, lines)
        before = live(check.kit)
        getattr(check, PASS)()
        check.releases(before)
    if check.imports:
        held = f"{check.pending} returned while the work that fills the array was held back"
        lines.say(f"{KIND}/{PASS}: of {check.imports} imports, {held}")


def main():
    lines = Lines()
    try:
        run(lines)
    except BaseException as error:
        traceback.print_exc()
        lines.fail(PASS, error)
    lines.end()
    sys.stdout.flush()
    os._exit(1 if lines.failures else 0)  # without the exit handlers of libraries, whose order is not ours


main()
