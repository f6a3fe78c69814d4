"""All models of the tests. Each output is the following value of each element of the input of the same name, or of the
first one; before that, a model does what its name says:

    next   nothing
    fail   fails
    hold   prints "entered hold", and waits for a byte on the server's standard input
    slow   takes 5 ms
"""

import os
import time

import numpy as np
import triton_python_backend_utils as backend


def following(values):
    """Is a function of the value alone, in all types."""
    if values.dtype == bool:
        return ~values
    if values.dtype == object:
        return np.array([value.upper() for value in values.flat], object).reshape(values.shape)
    return values + np.array(1, values.dtype)


class TritonPythonModel:
    def initialize(self, arguments):
        self.name = arguments["model_name"]

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if self.name == "fail":
            return backend.InferenceResponse(error=backend.TritonError("the model failed"))
        if self.name == "hold":
            print("entered hold", flush=True)
            os.read(0, 1)
        if self.name == "slow":
            time.sleep(0.005)
        first = next(iter(inputs.values()))
        return backend.InferenceResponse([backend.Tensor(name, following(inputs.get(name, first))) for name in request.requested_output_names()])
