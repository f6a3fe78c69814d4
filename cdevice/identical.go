package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// arrow-go compares schemas without their metadata, and types without the names and metadata
// of some nested fields. What follows is for types that are equal by arrow.TypeEqual.

// sameSchema reports whether schemas are one, or copies.
func sameSchema(a, b *arrow.Schema) bool { return a == b || schema.Same(a, b) }

// identicalSchemas reports whether schemas are equal in everything, metadata included.
func identicalSchemas(a, b *arrow.Schema) bool {
	if sameSchema(a, b) { // as often: equal schemas are imported as one
		return true
	}
	if a.NumFields() != b.NumFields() || a.Endianness() != b.Endianness() || !a.Metadata().Equal(b.Metadata()) {
		return false
	}
	for i := range a.NumFields() {
		if !identicalFields(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

func identicalFields(a, b arrow.Field) bool {
	return a.Name == b.Name && a.Nullable == b.Nullable && a.Metadata.Equal(b.Metadata) && identicalTypes(a.Type, b.Type)
}

// sameType reports whether types are equal; first by address, which is what most batches need.
func sameType(a, b arrow.DataType) bool {
	if a == nil || b == nil {
		return false
	}
	return layout.Identical(a, b) || arrow.TypeEqual(a, b)
}

// identicalTypes reports whether equal types also have the same nested fields.
func identicalTypes(a, b arrow.DataType) bool {
	if layout.Identical(a, b) {
		return true
	}
	switch a := a.(type) {
	case arrow.ExtensionType:
		return !sameStorage(a, b) || identicalTypes(a.StorageType(), b.(arrow.ExtensionType).StorageType())
	case *arrow.DictionaryType:
		return identicalTypes(a.ValueType, b.(*arrow.DictionaryType).ValueType)
	case arrow.NestedType:
		fields, others := a.Fields(), b.(arrow.NestedType).Fields()
		for i := range fields {
			if !identicalFields(fields[i], others[i]) {
				return false
			}
		}
	}
	return true
}

// underTypes returns the columns with the types of the schema, which are equal to theirs.
func underTypes(columns []tree.Node, schema *arrow.Schema) []tree.Node {
	var own []tree.Node // nil while no column differs
	for i := range columns {
		dt := schema.Field(i).Type
		if identicalTypes(columns[i].Type, dt) {
			continue
		}
		if own == nil {
			own = append(own, columns...)
		}
		own[i] = underType(&columns[i], dt)
	}
	if own == nil {
		return columns
	}
	return own
}

// sameStorage reports whether two extension types that report to be equal have the same storage
// type. A program's type may report that wrongly; it is then left unchanged.
func sameStorage(a, b arrow.DataType) bool {
	return sameType(layout.StorageType(a), layout.StorageType(b))
}

// underType returns the node with another type, which is equal to its own.
func underType(n *tree.Node, dt arrow.DataType) tree.Node {
	same := *n
	if dt.ID() == arrow.EXTENSION && !sameStorage(n.Type, dt) {
		return same
	}
	same.Type = dt
	same.Children = make([]tree.Node, len(n.Children))
	for i := range n.Children {
		same.Children[i] = underType(&n.Children[i], layout.ChildType(layout.StorageType(dt), i))
	}
	return same
}
