package layout

import (
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"
)

// plans has plans by the address of their schema, so that the batches of a stream share one. An entry
// does not keep its plan or the schema alive: batches do, and between them the plan lasts until the
// next garbage collection.
var plans [planSlots]atomic.Pointer[weak.Pointer[Plan]]

const (
	planBits  = 8
	planSlots = 1 << planBits
)

// PlanOf returns the plan of a schema: the same one again, if the schema is the same pointer, as long
// as the plan is in use and no other schema took its place.
func PlanOf(s *arrow.Schema) (*Plan, error) {
	slot := &plans[slotOf(s)]
	if known := slot.Load(); known != nil {
		// A plan keeps its schema alive, so that no other schema can have the address.
		if p := known.Value(); p != nil && p.Schema == s {
			return p, nil
		}
	}
	p, err := newPlan(s)
	if err != nil {
		return nil, err
	}
	entry := weak.Make(p)
	slot.Store(&entry)
	return p, nil
}

// slotOf returns a number for an address that is likely to differ from that of others.
func slotOf(s *arrow.Schema) uint64 {
	const spread = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	return uint64(uintptr(unsafe.Pointer(s))) * spread >> (64 - planBits)
}
