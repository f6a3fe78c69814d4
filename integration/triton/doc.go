// Package triton tests package interop/triton against a server in another process: server.py, which has the
// messages of Triton's client for Python, and opens regions on the simulated driver. run.sh runs it.
package triton
