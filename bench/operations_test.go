package main

import (
	"testing"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
)

// Each operation and its peers run, one by one and with more batches than a consumer holds, and what they export is
// released at their end.
func TestOperationsLeaveNothing(t *testing.T) {
	defer withCores(2)()
	for _, of := range kinds {
		for _, one := range of(int64Subject(3)) {
			t.Run(one.name, func(t *testing.T) {
				cdevicetest.CheckLeaks(t)
				s := newShape(int64Subject(3))
				defer s.release()
				op := one.open(s)
				defer op.end()
				if op.alone != nil {
					return
				}
				for _, n := range []int{1, held(3, true) + 1} {
					op.ours.turn(n)
					for _, p := range op.peers {
						side{do: p.do, prepare: p.prepare}.turn(n)
					}
				}
			})
		}
	}
}
