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

// Identical reports whether two types are the same pointer, or the same in memory by other means.
func Identical(a, b arrow.DataType) bool {
	type words [2]uintptr
	return *(*words)(unsafe.Pointer(&a)) == *(*words)(unsafe.Pointer(&b))
}

// extension is an extension type, and what it was stored as.
type extension struct {
	dt      arrow.ExtensionType
	storage arrow.DataType
}

// watch notes a type of an array of the plan, and what it is stored as, so that the plan is not used when a program
// has changed them. Other types that can change, such as a timestamp's, have the same layout then.
func (p *Plan) watch(dt arrow.DataType) {
	for range MaxDepth {
		switch t := dt.(type) {
		case arrow.ExtensionType: // which is a NestedType, too
			dt = t.StorageType()
			p.extensions = append(p.extensions, extension{t, dt})
		case *arrow.FixedSizeBinaryType, *arrow.DictionaryType, arrow.NestedType:
			p.states.Add(dt)
			return
		default:
			return
		}
	}
}

// fits reports whether the types are as they were when the plan was made.
func (p *Plan) fits() bool {
	return (len(p.extensions) == 0 || p.extensionsFit()) && p.states.Same()
}

// extensionsFit reports whether the extension types have the storage that they had; false if a method of one panics.
func (p *Plan) extensionsFit() (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	for i := range p.extensions {
		if was := &p.extensions[i]; !Identical(was.dt.StorageType(), was.storage) {
			return false
		}
	}
	return true
}
