"""The side of PyArrow's Flight in bench/flight: a server, or a client of one.

peer.py serve            prints its address, and then its CPU time for each line of its input
peer.py client ADDRESS   moves the load that each line describes, and prints the nanoseconds
"""

import functools
import json
import sys
import threading
import time

import pyarrow as pa
import pyarrow.flight as fl


@functools.cache
def batch(rows):
    return pa.record_batch(
        {
            "id": pa.array(range(rows), pa.int64()),
            "value": pa.array(map(float, range(rows)), pa.float32()),
            "kind": pa.array((i % 256 for i in range(rows)), pa.uint8()),
        }
    )


class Server(fl.FlightServerBase):
    def do_get(self, context, ticket):
        load = json.loads(ticket.ticket)
        return fl.RecordBatchStream(pa.Table.from_batches([batch(load["rows"])] * load["batches"]))

    def do_put(self, context, descriptor, reader, writer):
        read(reader)


def read(reader):
    try:
        while True:
            reader.read_chunk()
    except StopIteration:
        pass


def get(client, load):
    read(client.do_get(fl.Ticket(json.dumps(load))))


def put(client, load):
    one = batch(load["rows"])
    writer, _ = client.do_put(fl.FlightDescriptor.for_command(json.dumps(load)), one.schema)
    with writer:
        for _ in range(load["batches"]):
            writer.write_batch(one)


def run(client, load):
    """Moves a load, on all streams at once."""
    move = put if load["put"] else get
    threads = [threading.Thread(target=move, args=(client, load)) for _ in range(load["streams"])]
    start, before = time.perf_counter_ns(), time.process_time_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"ns": time.perf_counter_ns() - start, "cpu": time.process_time_ns() - before}


def main():
    if sys.argv[1] == "serve":
        server = Server("grpc://127.0.0.1:0")
        print(f"grpc://127.0.0.1:{server.port}", flush=True)
        for _ in sys.stdin:
            print(json.dumps({"cpu": time.process_time_ns()}), flush=True)
        server.shutdown()
        return
    client = fl.connect(sys.argv[2])
    for line in sys.stdin:
        print(json.dumps(run(client, json.loads(line))), flush=True)


main()
