// Package panictype has an extension type as a program may have one: its methods panic.
package panictype

import (
	"math"
	"reflect"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Name is that of the type.
const Name = "panics"

// Type is an extension type whose methods panic if panics, which each of them calls first, returns true.
type Type struct {
	arrow.ExtensionBase
	panics *func() bool // a pointer, as reflect.DeepEqual compares types, and no functions
}

// New returns a type over a storage.
func New(storage arrow.DataType, panics func() bool) *Type {
	return &Type{arrow.ExtensionBase{Storage: storage}, &panics}
}

// After is for a type whose methods panic after as many calls as left holds. It sets left to as many as there can be.
func After(left *atomic.Int64) (panics func() bool) {
	left.Store(math.MaxInt64)
	return func() bool { return left.Add(-1) < 0 }
}

type values struct{ array.ExtensionArrayBase }

func (t *Type) call(method string) {
	if (*t.panics)() {
		panic("no method " + method)
	}
}

func (t *Type) ArrayType() reflect.Type {
	t.call("ArrayType")
	return reflect.TypeFor[values]()
}
func (t *Type) ID() arrow.Type      { t.call("ID"); return t.ExtensionBase.ID() }
func (t *Type) Name() string        { t.call("Name"); return t.ExtensionBase.Name() }
func (t *Type) String() string      { t.call("String"); return t.ExtensionBase.String() }
func (t *Type) Fingerprint() string { t.call("Fingerprint"); return t.ExtensionBase.Fingerprint() }
func (t *Type) Layout() arrow.DataTypeLayout {
	t.call("Layout")
	return t.ExtensionBase.Layout()
}
func (t *Type) ExtensionName() string       { t.call("ExtensionName"); return Name }
func (t *Type) Serialize() string           { t.call("Serialize"); return "" }
func (t *Type) StorageType() arrow.DataType { t.call("StorageType"); return t.Storage }
func (t *Type) ExtensionEquals(other arrow.ExtensionType) bool {
	t.call("ExtensionEquals")
	return other.ExtensionName() == Name
}
func (t *Type) Deserialize(storage arrow.DataType, _ string) (arrow.ExtensionType, error) {
	t.call("Deserialize")
	return &Type{arrow.ExtensionBase{Storage: storage}, t.panics}, nil
}
