package main

import (
	"testing"

	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// The simulated GPU fails the test on a missing wait, an early free, and a leak.
func TestRun(t *testing.T) {
	cudasimtest.Start(t)
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), gpu); err != nil {
		t.Fatal(err)
	}
}
