//go:build cgo

package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

const (
	schemaFirst = "schema, first time"
	schemaAgain = "schema again"
)

func schemaOperations(sub subject) []measurement {
	if sub.name == onGoHeap { // a schema has no buffers
		return nil
	}
	return []measurement{{schemaFirst, newSchemas}, {schemaAgain, sameSchema}}
}

// sameSchema is one schema, exported and imported again and again.
func sameSchema(s shape) operation {
	schema := s.rec.Schema()
	out := new(cdata.CArrowSchema)
	ours := func(n int) {
		for range n {
			check(cdevice.ExportSchema(schema, out))
			must(cdevice.ImportSchema(out))
		}
	}
	return operation{ours: side{do: ours}, peers: append(cdataSchema(schema), s.others(schemaAgain, false)...)}
}

// newSchemas are schemas that are exported and imported once each. They differ in the names of the fields. What is
// remembered of a schema is of no use.
func newSchemas(s shape) operation {
	out := new(cdata.CArrowSchema)
	var fresh []*arrow.Schema
	made := 0
	ours := side{
		prepare: func(n int) {
			fresh = fresh[:0]
			for range n {
				fresh = append(fresh, renamed(s.rec.Schema(), made))
				made++
			}
		},
		do: func(n int) {
			for i := range n {
				check(cdevice.ExportSchema(fresh[i], out))
				must(cdevice.ImportSchema(out))
			}
		},
	}
	return operation{ours: ours, peers: append(cdataSchema(s.rec.Schema()), s.others(schemaFirst, false)...)}
}

// renamed has the fields of a schema under new names.
func renamed(schema *arrow.Schema, number int) *arrow.Schema {
	fields := schema.Fields()
	for i := range fields {
		fields[i].Name = fmt.Sprintf("c%d of %d", i, number)
	}
	return arrow.NewSchema(fields, nil)
}

// cdataSchema remembers nothing of a schema, so that a new one costs as much as the same again.
func cdataSchema(schema *arrow.Schema) []peer {
	out := new(cdata.CArrowSchema)
	return []peer{{name: "cdata", do: func(n int) {
		for range n {
			*out = cdata.CArrowSchema{}
			cdata.ExportArrowSchema(schema, out)
			must(cdata.ImportCArrowSchema(out))
		}
	}}}
}
