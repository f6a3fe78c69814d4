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

// Type is an extension type whose methods panic once they have been called as often as Left was.
type Type struct {
	arrow.ExtensionBase
	Left *atomic.Int64
}

// New returns a type over a storage, and sets left to as many calls as there can be.
func New(storage arrow.DataType, left *atomic.Int64) *Type {
	left.Store(math.MaxInt64)
	return &Type{arrow.ExtensionBase{Storage: storage}, left}
}

type values struct{ array.ExtensionArrayBase }

func (t *Type) call(method string) {
	if t.Left.Add(-1) < 0 {
		panic("no method " + method)
	}
}

func (t *Type) ArrayType() reflect.Type {
	t.call("ArrayType")
	return reflect.TypeFor[values]()
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
	return &Type{arrow.ExtensionBase{Storage: storage}, t.Left}, nil
}
