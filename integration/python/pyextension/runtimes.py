"""Three Go runtimes in one process: two wheels and a driver of ADBC. test_runtimes.py runs it in an environment that has
the wheels:

python runtimes.py ORDER PART
"""

import contextlib
import gc
import signal
import sys
import threading
import time

import polars as pl


def load(order):
    """Loads the three, in an order that is the names of the modules."""
    for name in order.split(","):
        globals()[name] = __import__(name)
        if name == "adbc_driver_flightsql":
            import adbc_driver_manager

            globals()["adbc_driver_manager"] = adbc_driver_manager
            refused()


def refused():
    """A call of the driver: Go code with sockets and goroutines of its own, up to the error for a server that is not there."""
    with adbc_driver_manager.AdbcDatabase(driver=adbc_driver_flightsql._driver_path(), uri="grpc://localhost:1") as database:
        with adbc_driver_manager.AdbcConnection(database) as connection:
            with adbc_driver_manager.AdbcStatement(connection) as statement:
                statement.set_sql_query("select 1")
                try:
                    statement.execute_query()
                except adbc_driver_manager.OperationalError as error:
                    assert "connection refused" in str(error), error
                else:
                    raise AssertionError("a query without a server")


TRIPS = pl.DataFrame({"city": ["Oslo", "Lima", "Pune"], "km": [12.5, None, 3.0]})


def exchanged():
    """Objects of each extension given to the other: a batch, a reader, a column."""
    more = totals.add_running_total(TRIPS, "km")
    assert samples.count(more) == 3
    again = totals.add_running_total(samples.echo_reader(samples.echo_batch(more)), "km_total")
    assert pl.DataFrame(again)["km_total_total"].to_list() == [12.5, 25.0, 40.5]
    assert pl.Series(samples.echo_array(again.column("km_total_total"))).to_list() == [12.5, 25.0, 40.5]
    assert samples.host_rows(samples.echo_reader(again)) == 3
    try:
        totals.add_running_total(samples.counters(2, 2), "n")
    except ValueError as error:
        assert "no float64 column" in str(error), error
    else:
        raise AssertionError("a column of integers")
    try:
        samples.panics()
    except samples.Panic as error:
        assert not isinstance(error, totals.Error) and "out of cheese" in str(error), error


def alive():
    gc.collect()
    counters = {}
    for module in (totals, samples):
        for name, count in module._extension._library.ask(".stats").items():
            counters[f"{module.__name__} {name}"] = count
    return {name: count for name, count in counters.items() if count}


def threads():
    """All three at the same time, from several threads each."""
    failures, until = [], time.monotonic() + 1
    rounds = dict.fromkeys((exchanged, refused), 0)

    def repeat(do):
        try:
            while time.monotonic() < until or rounds[do] < 8:
                do()
                rounds[do] += 1
        except BaseException as error:
            failures.append(error)
            raise

    running = [threading.Thread(target=repeat, args=(do,)) for do in (exchanged, refused) for _ in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures, failures
    deadline = time.monotonic() + 60
    while alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alive() == {}, alive()
    print("done")


def interrupt():
    """Waits for SIGINT from outside, in a call of Go and in Python."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for wait in (lambda: samples.sleep(60_000), lambda: time.sleep(60), lambda: list(samples.counters(1, 2, 60_000))):
        try:
            print("waiting", flush=True)
            wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        exchanged()
        refused()


def terminate():
    print("waiting", flush=True)
    samples.sleep(60_000)


def leave():
    """Ends with objects that are alive and threads that are in calls. polars calls no Python in them: where it does,
    with any object and without Go, a thread that Python ends at exit aborts the process (before Python 3.14)."""
    global kept
    kept = [totals.add_running_total(TRIPS, "km"), samples.counters(1, 1), samples.echo_reader(iter([TRIPS]))]

    def until_cancelled(do):
        with contextlib.suppress(Exception):  # a call that the end cancels
            do()

    def exchange():
        for _ in range(100_000):
            samples.count(totals.add_running_total(samples.echo_batch(TRIPS), "km"))

    for do in (lambda: samples.sleep(60_000), exchange, lambda: [refused() for _ in range(1000)]):
        threading.Thread(target=until_cancelled, args=(do,), daemon=True).start()
    time.sleep(0.2)
    print("done", flush=True)


if __name__ == "__main__":
    load(sys.argv[1])
    {"threads": threads, "interrupt": interrupt, "terminate": terminate, "leave": leave}[sys.argv[2]]()
