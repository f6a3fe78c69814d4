"""Work on a stream that takes a known time: kernels of our own, which the driver compiles. The simulator has no kernels;
there, many small fills stand in for one, which do not begin before something waits for them: see proceed()."""

import ctypes

import driver
import simulator

import numpy as np

# Spins for ns nanoseconds, then writes base, base+1, ... as n numbers of 64 bits. One block.
_KERNEL = """
.version 6.3
.target {target}
.address_size 64
.visible .entry spin_fill(.param .u64 p_out, .param .u64 p_n, .param .u64 p_base, .param .u64 p_ns)
{{
  .reg .pred %p<3>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd2, [p_ns];
  mov.u64 %rd1, %globaltimer;
  add.u64 %rd2, %rd1, %rd2;
SPIN:
  mov.u64 %rd1, %globaltimer;
  setp.lt.u64 %p1, %rd1, %rd2;
  @%p1 bra SPIN;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  cvt.u64.u32 %rd3, %r1;
  cvt.u64.u32 %rd4, %r2;
  ld.param.u64 %rd5, [p_out];
  cvta.to.global.u64 %rd6, %rd5;
  ld.param.u64 %rd7, [p_n];
  ld.param.u64 %rd8, [p_base];
FILL:
  setp.ge.u64 %p2, %rd3, %rd7;
  @%p2 bra DONE;
  add.u64 %rd9, %rd8, %rd3;
  shl.b64 %rd10, %rd3, 3;
  add.u64 %rd11, %rd6, %rd10;
  st.global.u64 [%rd11], %rd9;
  add.u64 %rd3, %rd3, %rd4;
  bra FILL;
DONE:
  ret;
}}
"""

_FILLS = 20 if simulator.is_simulator else 2400  # of the scratch memory, for 100 ms or so where there is no kernel
_SCRATCH = 1 << 12 if simulator.is_simulator else 64 << 20

_spin_fill = None
_scratch = {}  # memory to fill, by stream
_kept = []
how = ""


def begin():
    """Makes the primary context of the first GPU current, and compiles the kernel."""
    global _spin_fill, how
    driver.call("cuInit", 0)
    context = driver.ask(driver.handle, "cuDevicePrimaryCtxRetain", 0)
    driver.call("cuCtxPushCurrent_v2", driver.handle(context))
    if not simulator.is_simulator:
        _spin_fill, how = _compile()
    how = how or "fills of memory"


def _compile():
    """The kernel, for the newest of two targets that this driver still compiles."""
    for target in ("sm_75", "sm_50"):
        try:
            code = ctypes.create_string_buffer(_KERNEL.format(target=target).encode())
            module = driver.ask(driver.handle, "cuModuleLoadData", code)
            return driver.ask(driver.handle, "cuModuleGetFunction", driver.handle(module), b"spin_fill"), "a kernel"
        except driver.Error as e:
            error = e
    return None, f"fills of memory, as no kernel can be compiled: {error}"


def spin(stream, milliseconds):
    """Work on a stream, which is a handle, for some time."""
    if milliseconds:
        _launch(stream, 0, 0, 0, milliseconds)


def spin_fill(stream, address, count, first, milliseconds):
    """The same, and then the numbers from first on, as int64 at an address."""
    _launch(stream, address, count, first, milliseconds)


def _launch(stream, address, count, first, milliseconds):
    if _spin_fill is not None:
        values = [ctypes.c_uint64(v) for v in (address, count, first, int(milliseconds * 1e6))]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        threads = (ctypes.c_uint(n) for n in (1, 1, 1, 256, 1, 1, 0))
        driver.call("cuLaunchKernel", driver.handle(_spin_fill), *threads, driver.handle(stream), pointers, None)
        return
    if stream not in _scratch:
        _scratch[stream] = driver.ask(driver.address, "cuMemAlloc_v2", driver.size(_SCRATCH))
    _pause()
    for _ in range(int(_FILLS * milliseconds / 100)):
        driver.call("cuMemsetD8Async", driver.address(_scratch[stream]), ctypes.c_ubyte(1), driver.size(_SCRATCH), driver.handle(stream))
    if count:
        source = pinned(np.arange(first, first + count, dtype="i8"))
        arguments = driver.address(address), driver.handle(source.ctypes.data), driver.size(source.nbytes)
        driver.call("cuMemcpyHtoDAsync_v2", *arguments, driver.handle(stream))


_paused = False


def _pause():
    """Stops the simulator, so that no delay of this process lets the work end too early. It hides no missing order."""
    global _paused
    if simulator.is_simulator and not _paused:
        simulator.library.cudasim_pause()
        _paused = True


def proceed():
    """Lets the simulator go on. To be called before anything that waits."""
    global _paused
    if _paused:
        simulator.library.cudasim_resume()
        _paused = False


def pinned(values):
    """A copy in page-locked memory, which is freed at the end of the check."""
    memory = driver.ask(driver.handle, "cuMemAllocHost_v2", driver.size(max(values.nbytes, 1)))
    _kept.append(memory)
    array = np.frombuffer((ctypes.c_char * values.nbytes).from_address(memory), values.dtype)
    array[:] = values
    return array


def synchronize():
    """Waits for all work on the GPU, and raises what went wrong there."""
    proceed()
    driver.call("cuCtxSynchronize")


def forget():
    """Frees what the works of a check needed; the GPU must have done them."""
    while _kept:
        driver.call("cuMemFreeHost", driver.handle(_kept.pop()))
    while _scratch:
        driver.call("cuMemFree_v2", driver.address(_scratch.popitem()[1]))


def stream():
    """A stream that waits for no other: its handle. It lives as long as the process."""
    return driver.ask(driver.handle, "cuStreamCreate", driver.NON_BLOCKING)


def record(stream):
    """An event behind the work of a stream: an object whose address is that of a CUevent, as the Arrow interface has it."""
    made = ctypes.c_void_p(driver.ask(driver.handle, "cuEventCreate", driver.DISABLE_TIMING))
    driver.record(made.value, stream)
    return made
