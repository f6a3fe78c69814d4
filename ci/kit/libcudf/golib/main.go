// Command golib is the Go half of the kit's section libcudf, which check.py loads by package pyextension: it makes arrays of
// every type on a GPU, hands over what ForCuDF returns, and compares what a consumer makes of it to the original.
package main

func main() {}
