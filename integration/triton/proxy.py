"""A Triton for regions of CUDA shared memory, where there is no GPU: it opens the handles on the simulated driver, and has
the server at ADDRESS serve each as a region of system shared memory of the same name. Everything that it answers is
the answer of that server. The messages are those of the classes of Triton's client. It says by lines on standard output what
happens:

    port N       it serves
    sees JSON    a message that was received, as the generated classes have it
    end JSON     the report of the simulator; after the end of standard input
"""

import ctypes
import json
import sys
from concurrent import futures

import grpc
import simulator
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc

import driver
import gpu
from regions import Regions


def say(word, value):
    print(f"{word} {value}\n", end="", flush=True)


class Proxy(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, triton, gpus):
        self._triton = triton
        self._regions = Regions(gpus)

    def CudaSharedMemoryRegister(self, request, context):
        say("sees", json_format.MessageToJson(request, indent=None, preserving_proto_field_name=True))
        with self._regions.opening(request) as key:
            message = service_pb2.SystemSharedMemoryRegisterRequest(name=request.name, key=key, byte_size=request.byte_size)
            self._ask("SystemSharedMemoryRegister", message, context)
        return service_pb2.CudaSharedMemoryRegisterResponse()

    def CudaSharedMemoryUnregister(self, request, context):
        self._ask("SystemSharedMemoryUnregister", service_pb2.SystemSharedMemoryUnregisterRequest(name=request.name), context)
        self._regions.close(request.name)
        return service_pb2.CudaSharedMemoryUnregisterResponse()

    def CudaSharedMemoryStatus(self, request, context):
        listed = self._ask("SystemSharedMemoryStatus", service_pb2.SystemSharedMemoryStatusRequest(name=request.name), context)
        response = service_pb2.CudaSharedMemoryStatusResponse()
        for name, region in listed.regions.items():
            response.regions[name].name = name
            response.regions[name].byte_size = region.byte_size
        return response

    def ModelInfer(self, request, context):
        say("sees", json_format.MessageToJson(request, indent=None, preserving_proto_field_name=True))
        for tensor in request.inputs:
            self._regions.download(tensor.parameters)
        response = self._ask("ModelInfer", request, context)
        for tensor in request.outputs:
            self._regions.upload(tensor.parameters)
        return response

    def SystemSharedMemoryRegister(self, request, context):
        return self._ask("SystemSharedMemoryRegister", request, context)

    def SystemSharedMemoryUnregister(self, request, context):
        return self._ask("SystemSharedMemoryUnregister", request, context)

    def SystemSharedMemoryStatus(self, request, context):
        if request.name in self._regions:
            context.abort(grpc.StatusCode.NOT_FOUND, f"the region '{request.name}' is CUDA shared memory")
        return self._ask("SystemSharedMemoryStatus", request, context)

    def ModelMetadata(self, request, context):
        return self._ask("ModelMetadata", request, context)

    def _ask(self, method, message, context):
        """Asks the server, for as long as the client waits."""
        call = getattr(self._triton, method).future(message, timeout=context.time_remaining())
        context.add_callback(call.cancel)
        try:
            return call.result()
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        except grpc.FutureCancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "the client has gone")


def main():
    driver.call("cuInit", 0)
    gpus = {i: gpu.Gpu(i) for i in range(driver.ask(ctypes.c_int, "cuDeviceGetCount"))}
    server = grpc.server(futures.ThreadPoolExecutor(16))
    with grpc.insecure_channel(sys.argv[1]) as channel:
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Proxy(service_pb2_grpc.GRPCInferenceServiceStub(channel), gpus), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        say("port", port)
        sys.stdin.read()
        server.stop(grace=10).wait()
    for one in gpus.values():
        one.release()
    say("end", json.dumps({key: simulator.report()[key] for key in ("live", "leaks", "violations")}))


main()
