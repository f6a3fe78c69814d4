// Command golib is the library of Go functions that the test suites in Python call through package pyextension. Go,
// PyArrow and the other libraries are one process.
//
// Arrays and batches are arguments and results. What pyextension has no type for, such as a stream that a test reads and
// exports at the same time, has a handle. Functions that take the addresses of C structs are about the C interfaces.
package main

func main() {}
