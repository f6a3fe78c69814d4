//go:build cgo

package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// difference compares two arrays, whose types may differ in the ways in which libcudf changes types, and returns the
// first difference, or "" if there is none.
func difference(want, got arrow.Array) string {
	if want.Len() != got.Len() {
		return fmt.Sprintf("%d elements, want %d", got.Len(), want.Len())
	}
	if text := typeDifference(want.DataType(), got.DataType()); text != "" && !keysAreLost(want, got) {
		return text
	}
	for i := range want.Len() {
		if text := elementDifference(want, i, got, i); text != "" {
			return fmt.Sprintf("element %d: %s", i, text)
		}
	}
	return ""
}

// keysAreLost reports whether the arrays are dictionary arrays without rows: libcudf keeps no keys of those, and exports
// int64 as their type. FromCuDF gives them their type back.
func keysAreLost(want, got arrow.Array) bool {
	return want.Len() == 0 && want.DataType().ID() == arrow.DICTIONARY && got.DataType().ID() == arrow.DICTIONARY
}

// typeDifference reports a change of a type that loses something, besides names, and the width and precision of decimals.
func typeDifference(want, got arrow.DataType) string {
	want, got = storage(want), storage(got)
	if a, b := kind(want), kind(got); a != b {
		return fmt.Sprintf("type %s, want %s", got, want)
	}
	wants, gots := childTypes(want), childTypes(got)
	if len(wants) != len(gots) {
		return fmt.Sprintf("type %s has %d children, want %d as %s has", got, len(gots), len(wants), want)
	}
	for i := range wants {
		if text := typeDifference(wants[i], gots[i]); text != "" {
			return text
		}
	}
	return ""
}

// storage is the type of an extension type's values, and the type of a dictionary's values.
func storage(dt arrow.DataType) arrow.DataType {
	switch t := dt.(type) {
	case arrow.ExtensionType:
		return storage(t.StorageType())
	case *arrow.DictionaryType:
		return storage(t.ValueType)
	}
	return dt
}

func childTypes(dt arrow.DataType) []arrow.DataType {
	var types []arrow.DataType
	if nested, ok := dt.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			types = append(types, f.Type)
		}
	}
	return types
}

// kind is what must be the same of two types: the layouts of lists and texts may differ.
func kind(dt arrow.DataType) string {
	switch t := dt.(type) {
	case *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType:
		return "text"
	case *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.BinaryViewType:
		return "binary"
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType, *arrow.ListViewType, *arrow.LargeListViewType, *arrow.MapType:
		return "list"
	case *arrow.StructType:
		return "struct"
	case arrow.DecimalType:
		return fmt.Sprintf("decimal scale %d", t.GetScale())
	}
	return dt.Fingerprint() // has the unit and the time zone of a timestamp
}

// elementDifference compares element i of want to element j of got.
func elementDifference(want arrow.Array, i int, got arrow.Array, j int) string {
	want, i = decoded(want, i)
	got, j = decoded(got, j)
	if a, b := isNull(want, i), isNull(got, j); a || b {
		if a != b {
			return fmt.Sprintf("%s, want %s", shown(got, j), shown(want, i))
		}
		return ""
	}
	switch w := want.(type) {
	case array.ListLike:
		return listDifference(w, i, got.(array.ListLike), j)
	case *array.Struct:
		g := got.(*array.Struct)
		for k := range w.NumField() {
			if text := elementDifference(w.Field(k), i, g.Field(k), j); text != "" {
				return fmt.Sprintf("field %d: %s", k, text)
			}
		}
		return ""
	}
	if a, b := want.ValueStr(i), got.ValueStr(j); a != b {
		return fmt.Sprintf("%q, want %q", b, a)
	}
	return ""
}

func listDifference(want array.ListLike, i int, got array.ListLike, j int) string {
	wantStart, wantEnd := want.ValueOffsets(i)
	gotStart, gotEnd := got.ValueOffsets(j)
	if wantEnd-wantStart != gotEnd-gotStart {
		return fmt.Sprintf("a list of %d elements, want %d", gotEnd-gotStart, wantEnd-wantStart)
	}
	for k := range wantEnd - wantStart {
		if text := elementDifference(want.ListValues(), int(wantStart+k), got.ListValues(), int(gotStart+k)); text != "" {
			return fmt.Sprintf("[%d]: %s", k, text)
		}
	}
	return ""
}

// decoded is the value behind an element of a dictionary or an extension type.
func decoded(arr arrow.Array, i int) (arrow.Array, int) {
	for {
		switch a := arr.(type) {
		case array.ExtensionArray:
			arr = a.Storage()
		case *array.Dictionary:
			if a.IsNull(i) {
				return arr, i
			}
			arr, i = a.Dictionary(), a.GetValueIndex(i)
		default:
			return arr, i
		}
	}
}

func isNull(arr arrow.Array, i int) bool { return arr.DataType().ID() == arrow.NULL || arr.IsNull(i) }

func shown(arr arrow.Array, i int) string {
	if isNull(arr, i) {
		return "null"
	}
	return arr.ValueStr(i)
}
