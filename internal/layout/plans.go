package layout

import (
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// plans has plans by the address of the fields of their schema, so that the batches of a stream share
// one. An entry does not keep its plan or the schema alive: batches do, and between them the plan lasts
// until the next garbage collection.
var plans [planSlots]atomic.Pointer[weak.Pointer[Plan]]

const (
	planBits  = 8
	planSlots = 1 << planBits
)

// PlanOf returns the plan of a schema: the same one again, if the schema and its copies did not change,
// as long as the plan is in use and no other schema took its place. A program may assign another schema
// to *s, and other values to fields of its types.
func PlanOf(s *arrow.Schema) (*Plan, error) {
	slot := &plans[slotOf(s)]
	if known := slot.Load(); known != nil {
		// A plan keeps alive what its schema points to, so that no other schema has these addresses.
		if p := known.Value(); p != nil && schema.Same(s, &p.Schema) && p.fits() {
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

// slotOf returns a number for a schema that is likely to differ from that of others. The fields are the
// first member of arrow.Schema.
func slotOf(s *arrow.Schema) uint64 {
	const spread = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	return uint64(*(*uintptr)(unsafe.Pointer(s))) * spread >> (64 - planBits)
}

// variable is a type with exported fields that determine what its arrays look like, and what they were:
// values is the values of a dictionary, and the storage of an extension type.
type variable struct {
	dt            arrow.DataType
	width         int
	index, values arrow.DataType
}

// variableOf returns the state of a type now, without a type if it cannot change.
func variableOf(dt arrow.DataType) variable {
	switch t := dt.(type) {
	case *arrow.FixedSizeBinaryType:
		return variable{dt: t, width: t.ByteWidth}
	case *arrow.DictionaryType:
		return variable{dt: t, index: t.IndexType, values: t.ValueType}
	case arrow.ExtensionType:
		return variable{dt: t, values: t.StorageType()}
	}
	return variable{}
}

// Identical reports whether two types are the same pointer, or the same in memory by other means.
func Identical(a, b arrow.DataType) bool {
	type words [2]uintptr
	return *(*words)(unsafe.Pointer(&a)) == *(*words)(unsafe.Pointer(&b))
}

// watch notes a type of an array of the plan, and what it is stored as.
func (p *Plan) watch(dt arrow.DataType) {
	for range MaxDepth {
		v := variableOf(dt)
		if v.dt == nil {
			return
		}
		p.variable = append(p.variable, v)
		if dt.ID() != arrow.EXTENSION {
			return
		}
		dt = v.values
	}
}

// fits reports whether the types are as they were when the plan was made; false if a method of an
// extension type panics.
func (p *Plan) fits() (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	for i := range p.variable {
		was := &p.variable[i]
		now := variableOf(was.dt)
		if now.width != was.width || !Identical(now.index, was.index) || !Identical(now.values, was.values) {
			return false
		}
	}
	return true
}
