"""JAX. Its only stream has no handle; in the CUDA Array Interface it names none, and keeps no owner."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it takes the memory of the others
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import functools
import time

import child
import jax
import jax.numpy as jnp
import numpy as np
import simulator

import hold
import peer
import protocols
import with_driver
import work

_SIZE = 2048  # of the matrices that are multiplied for some time
_WORK = 200  # milliseconds of that, where JAX's work cannot be held


@functools.partial(jax.jit, static_argnums=1)
def _multiply(seed, rounds):
    """A zero of int64, after so many products of matrices. The number of rounds is part of the program: XLA would ask
    the host after each round otherwise."""
    start = jnp.full((_SIZE, _SIZE), 0.001, jnp.float32) * seed
    end = jax.lax.fori_loop(0, rounds, lambda _, m: jnp.tanh(m @ m), start)
    return (end[:1, 0] * 0).astype(jnp.int64)


@functools.partial(jax.jit, static_argnums=2)
def _fill(first, zero, count):
    return jnp.arange(count, dtype=jnp.int64) + first + zero


@jax.jit
def _copy(array, zero):
    return array + zero


class Peer(peer.Peer):
    name = "jax"
    protocols = ("dlpack", "cai")
    names_stream = keeps_owner = any_alignment = takes_read_only = tensor_keeps_array = False
    copies_interface = True  # or may do so
    default = None

    def __init__(self):
        super().__init__()
        if simulator.is_simulator:
            raise child.Skip("JAX does not run on the simulator")
        jax.config.update("jax_enable_x64", True)
        try:
            self._device = jax.devices("gpu")[0]
        except RuntimeError as e:
            raise child.Skip(f"JAX {jax.__version__} has no GPU here: {child.first_line(e)}") from None
        self.version = f"JAX {jax.__version__} on {self._device.device_kind}"
        self._zero = self._held_zero = self._last = None
        self._rounds = 0  # of work that takes a known time; 0: JAX's work is held

    def open(self):
        self._zero = self.array(np.zeros(1, "i8"))
        self._held_zero = with_driver.zeros(1, work.stream())
        super().open()
        try:
            follows, reason = self._follows_streams(), "it does not wait for the stream of what it takes"
        except Exception as e:
            follows, reason = False, child.first_line(e)
        if not follows:
            self._measure()
            print(f"jax: its work is not held, but takes {_WORK} ms: {reason}")

    def _follows_streams(self):
        """Whether JAX's work waits for the stream of an array that it takes, and neither JAX nor its export waits on the host: then
        a hold of that stream holds JAX's work."""
        with hold.Hold(seconds=0.5) as held:
            array = self.pending(64, 5, None, held)
            exported = array.__dlpack__(stream=protocols.aside())
            time.sleep(0.02)
            follows = held.held() and not array.is_ready()
        del exported
        return follows

    def _measure(self):
        """Finds how many rounds of work take long enough."""
        rounds = 64
        for _ in range(2):  # the first one compiles
            began = time.monotonic()
            _multiply(jnp.float32(1), rounds).block_until_ready()
        self._rounds = max(1, int(rounds * _WORK / max((time.monotonic() - began) * 1e3, 0.1)))
        _multiply(jnp.float32(1), self._rounds).block_until_ready()

    def _behind(self, held):
        """A zero that is there when a hold is open."""
        if self._rounds:
            zero = _multiply(jnp.float32(1), self._rounds)
            held.begin_timed(lambda: not zero.is_ready())
        else:
            held.begin(self._held_zero.stream)
            zero = jax.dlpack.from_dlpack(self._held_zero)
        self.keep(zero)
        return zero

    def array(self, values):
        return jax.device_put(np.ascontiguousarray(values), self._device).block_until_ready()

    def pending(self, count, first, stream, held=None):
        first = jnp.int64(first).block_until_ready()
        made = _fill(first, self._zero, count)
        if held is not None:
            made.block_until_ready()  # which was to compile and to load, and to have memory for the next one
            del made
            made = _fill(first, self._behind(held), count)
        self._last = made
        return made

    def read(self, array, stream, held=None):
        if held is None:
            out = jnp.array(array, copy=True)
        else:
            _copy(jnp.zeros(array.shape, array.dtype), self._zero).block_until_ready()  # as in pending
            out = _copy(array, self._behind(held))
        self._last = out
        return peer.Reading(lambda: np.array(out))

    def wait(self, stream):
        if self._last is not None:
            self._last.block_until_ready()

    def is_done(self, stream):
        return self._last is None or self._last.is_ready()

    def forget(self):
        self.wait(None)
        self._last = None
        super().forget()

    def unkeep(self):
        self._last = None
        super().unkeep()

    def every_other(self, array):
        return None  # it would be a copy without strides

    def used(self):
        stats = self._device.memory_stats()
        return stats and stats.get("bytes_in_use")

    def address(self, array):
        return array.unsafe_buffer_pointer()

    def from_dlpack(self, source):
        return jax.dlpack.from_dlpack(source)

    def from_cai(self, source):
        self.keep(source)
        return jnp.asarray(source)
