// Package triton tests package interop/triton with Triton Inference Server, which run.sh installs. Memory of simulated GPUs
// goes through proxy.py, which offers it to the server as system shared memory.
package triton
