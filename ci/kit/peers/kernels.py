"""Kernels of our own, as text that the driver compiles. Without a GPU, or if this driver compiles neither target, there are none."""

import ctypes

import driver
import simulator

# hold ends when the host writes a flag in its own memory, or when ns nanoseconds are over, so that nothing hangs. A volatile
# load is of the scope of the system: it sees what the host writes. One thread: one of many multiprocessors is busy.
# fill writes first, first+1, ... as n numbers of 64 bits. One block.
_CODE = """
.version 6.3
.target {target}
.address_size 64
.visible .entry hold(.param .u64 p_flag, .param .u64 p_ns)
{{
  .reg .pred %p<3>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [p_flag];
  cvta.to.global.u64 %rd2, %rd1;
  ld.param.u64 %rd3, [p_ns];
  mov.u64 %rd4, %globaltimer;
  add.u64 %rd3, %rd4, %rd3;
WAIT:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra OPEN;
  mov.u64 %rd5, %globaltimer;
  setp.lt.u64 %p2, %rd5, %rd3;
  @%p2 bra WAIT;
OPEN:
  ret;
}}
.visible .entry fill(.param .u64 p_out, .param .u64 p_n, .param .u64 p_first)
{{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [p_out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.param.u64 %rd3, [p_n];
  ld.param.u64 %rd4, [p_first];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  cvt.u64.u32 %rd5, %r1;
  cvt.u64.u32 %rd6, %r2;
NEXT:
  setp.ge.u64 %p1, %rd5, %rd3;
  @%p1 bra DONE;
  add.u64 %rd7, %rd4, %rd5;
  shl.b64 %rd8, %rd5, 3;
  add.u64 %rd9, %rd2, %rd8;
  st.global.u64 [%rd9], %rd7;
  add.u64 %rd5, %rd5, %rd6;
  bra NEXT;
DONE:
  ret;
}}
"""
_THREADS = {"hold": 1, "fill": 256}
_functions = {}


def compile_all():
    """Compiles the kernels, for the newest of two targets that this driver still compiles. Returns the reason if there are none."""
    if simulator.is_simulator:
        return "the simulator has no kernels"
    for target in ("sm_75", "sm_50"):
        try:
            code = ctypes.create_string_buffer(_CODE.format(target=target).encode())
            module = driver.handle(driver.ask(driver.handle, "cuModuleLoadData", code))
            for name in _THREADS:
                _functions[name] = driver.ask(driver.handle, "cuModuleGetFunction", module, name.encode())
            return None
        except driver.Error as e:
            error = e
            _functions.clear()
    return f"no kernel can be compiled: {error}"


def are_there():
    return bool(_functions)


def launch(name, stream, *arguments):
    """Launches a kernel on a stream, which is a handle, with arguments of 64 bits."""
    values = [ctypes.c_uint64(v) for v in arguments]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    sizes = (ctypes.c_uint(n) for n in (1, 1, 1, _THREADS[name], 1, 1, 0))
    driver.call("cuLaunchKernel", driver.handle(_functions[name]), *sizes, driver.handle(stream), pointers, None)
