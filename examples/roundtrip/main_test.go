package main

import (
	"testing"

	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestRoundTrip(t *testing.T) {
	sim := cudasimtest.Start(t)
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := roundTrip(t.Context(), threeBatches(), gpu); err != nil {
		t.Fatal(err)
	}
	if copied := sim.Report().Bytes.DtoH; copied != 3*4*8 {
		t.Errorf("%d bytes came back", copied)
	}
}
