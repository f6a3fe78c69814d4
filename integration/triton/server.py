"""A server of GRPCInferenceService, with the classes of Triton's client, whose regions are memory of another process
on the simulated GPU. It is told what to do by lines on standard input, and says by lines on standard output what
happens:

    port N       it serves
    entered M    a request of a model that is held back has come to the model M, and waits for the line "go"
    sees JSON    a message that was received, as the generated classes have it
    end JSON     the report of the simulator; after the end of standard input
"""

import ctypes
import json
import os
import signal
import sys
import threading
from concurrent import futures

import grpc
import numpy as np
import simulator
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

import driver
import gpu
from regions import Refused, Regions

_output = threading.Lock()
_go = threading.Semaphore(0)


def say(word, value):
    with _output:
        print(word, value, flush=True)


def parameters(tensor):
    """Where a tensor is: region, offset and size."""
    p = {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in tensor.parameters.items()}
    return p["shared_memory_region"], p.get("shared_memory_offset", 0), p["shared_memory_byte_size"]


def read(tensor, regions):
    region, offset, byte_size = parameters(tensor)
    dtype = np.dtype(triton_to_np_dtype(tensor.datatype))
    needed = dtype.itemsize * int(np.prod(tensor.shape))
    if needed != byte_size:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"input '{tensor.name}' got unexpected byte size {byte_size}, expecting {needed}")
    return regions[region].gpu.read(regions[region].at(offset, byte_size), dtype, tuple(tensor.shape))


def following(values):
    """The next value of each: a function of the value alone, in all types."""
    return ~values if values.dtype == bool else values + np.array(1, values.dtype)


def held(model):
    say("entered", model)
    _go.acquire()


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, regions):
        self.regions = regions

    def _answer(self, context, function, *arguments):
        try:
            return function(*arguments)
        except Refused as error:
            context.abort(error.code, str(error))

    def CudaSharedMemoryRegister(self, request, context):
        say("sees", json_format.MessageToJson(request, indent=None, preserving_proto_field_name=True))
        self._answer(context, self.regions.register, request.name, request.raw_handle, request.device_id, request.byte_size)
        return service_pb2.CudaSharedMemoryRegisterResponse()

    def CudaSharedMemoryUnregister(self, request, context):
        self._answer(context, self.regions.unregister, request.name)
        return service_pb2.CudaSharedMemoryUnregisterResponse()

    def CudaSharedMemoryStatus(self, request, context):
        response = service_pb2.CudaSharedMemoryStatusResponse()
        for name, (device_id, byte_size) in self._answer(context, self.regions.status, request.name).items():
            response.regions[name].name = name
            response.regions[name].device_id = device_id
            response.regions[name].byte_size = byte_size
        return response

    def ModelInfer(self, request, context):
        say("sees", json_format.MessageToJson(request, indent=None, preserving_proto_field_name=True))
        return self._answer(context, self._infer, request)

    def _infer(self, request):
        names = {parameters(t)[0] for t in [*request.inputs, *request.outputs] if t.parameters}
        with self.regions.using(names) as regions:
            inputs = {t.name: read(t, regions) for t in request.inputs}
            if request.model_name == "fail":
                raise Refused(grpc.StatusCode.INTERNAL, "the model failed")
            if request.model_name in ("hold", "die"):
                held(request.model_name)
            if request.model_name == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            response = service_pb2.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
            for wanted in request.outputs:
                source = wanted.name if wanted.name in inputs else next(iter(inputs))
                self._output(wanted, following(inputs[source]), regions, response)
            return response

    def _output(self, wanted, values, regions, response):
        output = response.outputs.add(name=wanted.name, datatype=np_to_triton_dtype(values.dtype), shape=values.shape)
        region, offset, byte_size = parameters(wanted)
        if values.nbytes > byte_size:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"output '{wanted.name}' has {values.nbytes} bytes, and {byte_size} in the region")
        regions[region].gpu.write(regions[region].at(offset, byte_size), values)
        output.parameters["shared_memory_region"].string_param = region
        output.parameters["shared_memory_byte_size"].int64_param = byte_size
        if offset:
            output.parameters["shared_memory_offset"].int64_param = offset


def main():
    driver.call("cuInit", 0)
    gpus = {i: gpu.Gpu(i) for i in range(driver.ask(ctypes.c_int, "cuDeviceGetCount"))}
    regions = Regions(gpus)
    server = grpc.server(futures.ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(regions), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say("port", port)
    for line in sys.stdin:
        if line == "go\n":
            _go.release()
    server.stop(grace=10).wait()
    for one in gpus.values():
        one.release()
    say("end", json.dumps({key: simulator.report()[key] for key in ("live", "leaks", "violations")}))


main()
