"""The names of devices."""

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, EXT_DEV, CUDA_MANAGED = 1, 2, 3, 10, 11, 12, 13

# Memory of these device types is accessible by the CPU.
CPU_ACCESSIBLE = frozenset([CPU, CUDA_HOST, ROCM_HOST, CUDA_MANAGED])

# And by CUDA.
CUDA_ACCESSIBLE = frozenset([CUDA, CUDA_HOST, CUDA_MANAGED])

_NAMES = {
    CPU: "cpu",
    CUDA: "cuda",
    CUDA_HOST: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    ROCM: "rocm",
    ROCM_HOST: "rocm_host",
    EXT_DEV: "ext_dev",
    CUDA_MANAGED: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
}


def device_name(device_type, device_id):
    """The name of a device, such as "cuda:0"; without an id where that is -1."""
    name = _NAMES.get(device_type, f"device_type({device_type})")
    return name if device_id < 0 or device_type == CPU else f"{name}:{device_id}"
