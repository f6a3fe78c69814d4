package schema

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
)

// The schemas are equal in memory, too: what arrow-go's methods read is all there.
func TestSchemaIsThatOfArrowGo(t *testing.T) {
	assert.True(t, layoutIsKnown(), "arrow.Schema has changed: see schemaLayout")
	for _, names := range [][]string{{}, {""}, {"a"}, {"a", "b"}, {"a", "b", "a"}, {"", "", ""}, numbered(9), numbered(300)} {
		for _, md := range []arrow.Metadata{{}, metadata("k", "v")} {
			fields := make([]arrow.Field, len(names))
			for i, name := range names {
				fields[i] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
			}
			want := arrow.NewSchema(fields, &md)
			assert.Equal(t, want, newSchema(slices.Clone(fields), md), "%q", names)
		}
	}
}

// An arrow-go that returns a slice of the index itself lets a program append to it.
func TestIndexOfANameIsApartFromOthers(t *testing.T) {
	s := newSchema([]arrow.Field{{Name: "a", Type: arrow.Null}, {Name: "b", Type: arrow.Null}}, arrow.Metadata{})
	_ = append((*schemaLayout)(unsafe.Pointer(s)).index["a"], 7)
	assert.Equal(t, []int{1}, s.FieldIndices("b"))
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("column ", i))
	}
	return names
}
