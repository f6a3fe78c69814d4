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

import peer

_SIZE = 2048  # of the matrices that are multiplied for some time


def _work(seed, rounds):
    """A zero of int64, after so many products of matrices. The number of rounds is part of the program: XLA would ask
    the host after each round otherwise."""
    start = jnp.full((_SIZE, _SIZE), 0.001, jnp.float32) * seed
    end = jax.lax.fori_loop(0, rounds, lambda _, m: jnp.tanh(m @ m), start)
    return (end[0, 0] * 0).astype(jnp.int64)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _fill(first, count, rounds):
    return jnp.arange(count, dtype=jnp.int64) + first + (_work(first.astype(jnp.float32), rounds) if rounds else 0)


@functools.partial(jax.jit, static_argnums=1)
def _copy(array, rounds):
    return array + _work(array[0].astype(jnp.float32), rounds)


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
        self._rounds_per_ms = 0.0
        self._last = None

    def open(self):
        """Measures how many rounds take a millisecond."""
        rounds = 64
        for _ in range(2):  # the first one compiles
            began = time.monotonic()
            _fill(jnp.int64(1), 8, rounds).block_until_ready()
        self._rounds_per_ms = rounds / max((time.monotonic() - began) * 1e3, 0.1)
        super().open()

    def _rounds(self, milliseconds):
        return max(1, int(milliseconds * self._rounds_per_ms)) if milliseconds else 0

    def blocks_as(self, protocol):
        return protocol == "cai"  # or may do so

    def array(self, values):
        return jax.device_put(np.ascontiguousarray(values), self._device).block_until_ready()

    def pending(self, count, first, stream, milliseconds):
        self._last = _fill(jnp.int64(first), count, self._rounds(milliseconds))
        return self._last

    def read(self, array, stream, milliseconds):
        rounds = self._rounds(milliseconds)
        out = _copy(array, rounds) if rounds else jnp.array(array, copy=True)
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
