//go:build cgo

package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ImportRecordBatch makes a batch of a C struct, without copying. It does not read the data and does
// not wait: it checks the structs against the schema and keeps the sync event for the functions that
// read the data. [RecordBatch.ValidateFull] checks the contents of the buffers.
//
// *arr is an ArrowDeviceArray, or an ArrowArray, whose memory is the CPU's and ready: then [WithDevice]
// with another device than the CPU is an error.
//
// The C struct must be a struct array without nulls. [ImportArray] takes one that has them, or whose
// null count of -1 stands beside a bitmap: an import reads no bitmap, except those of package cdata. An offset of
// the struct array becomes one of each column, whose null counts other than zero become unknown.
//
// It takes ownership of *arr and *sch, even if it returns an error: both are marked released. Only exchanged
// addresses of the two leave them as they are, with an error that says so. The
// producer's release callback is called after the last use of the memory, on the thread that ends it.
//
// Errors are [FieldError], and wrap arrow.ErrInvalid for malformed structs, [ErrReleased] for released
// ones, arrow.ErrNotImplemented for types that arrow-go does not have.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowdevicearray-structure
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowarray-structure
func ImportRecordBatch[S ArrayStruct](arr *S, sch *cdata.CArrowSchema, opts ...ImportOption) (*RecordBatch, error) {
	var in cstruct.Input
	setInput(&in, arr)
	return importBatchAndSchema(&in, sch, opts)
}

// ImportRecordBatchWithSchema is [ImportRecordBatch] with a schema that is already known, as that of a
// stream is. The batch has a copy of *s: the program may assign another schema to it. It must not change the
// types of the schema while the batch is in use.
//
// It takes ownership of *arr, even if it returns an error.
func ImportRecordBatchWithSchema[S ArrayStruct](arr *S, s *arrow.Schema, opts ...ImportOption) (*RecordBatch, error) {
	var in cstruct.Input
	setInput(&in, arr)
	return importBatch(&in, s, true, importOptionsFor(&in, opts))
}

// ImportArray makes an array of a C struct and its schema; everything said of [ImportRecordBatch]
// holds. The array's Field has the schema's name, nullability and metadata.
//
// It takes ownership of *arr and *sch, even if it returns an error.
func ImportArray[S ArrayStruct](arr *S, sch *cdata.CArrowSchema, opts ...ImportOption) (*Array, error) {
	var in cstruct.Input
	setInput(&in, arr)
	return importArrayAndSchema(&in, sch, opts)
}

// ImportArrayWithType is [ImportArray] with a type that is already known. The program must not change the type
// while the array is in use.
//
// It takes ownership of *arr, even if it returns an error.
func ImportArrayWithType[S ArrayStruct](arr *S, dt arrow.DataType, opts ...ImportOption) (*Array, error) {
	var in cstruct.Input
	setInput(&in, arr)
	return importArray(&in, arrow.Field{Type: dt, Nullable: true}, importOptionsFor(&in, opts))
}

// ImportSchema makes an arrow-go schema of a C schema, which must be a struct.
// It takes ownership of *sch, even if it returns an error.
//
// arrow-go has no place for some of it: the names of the entries, keys and values of a map, the metadata of
// the values of a run-end encoded type, and so their extension type if it is not registered.
//
// Imports of equal C schemas may return the same *arrow.Schema, to this and to other callers, in other
// imports of this package too. A program must not change it: neither exported fields of its types,
// such as arrow.TimestampType.TimeZone, nor slices that its methods return.
func ImportSchema(sch *cdata.CArrowSchema) (*arrow.Schema, error) {
	return schema.ImportSchema(schemaMirror(sch))
}

// ImportField makes an arrow-go field of a C schema. It takes ownership of *sch,
// even if it returns an error.
func ImportField(sch *cdata.CArrowSchema) (arrow.Field, error) {
	return schema.Import(schemaMirror(sch))
}

// setInput makes *in, which is zero, the struct of either interface.
func setInput[S ArrayStruct](in *cstruct.Input, arr *S) {
	switch arr := any(arr).(type) {
	case *CArrowDeviceArray:
		in.SetDevice(deviceMirror(arr))
	case *cdata.CArrowArray:
		in.SetPlain(arrayMirror(arr))
	}
}

func importBatchAndSchema(in *cstruct.Input, sch *cdata.CArrowSchema, opts []ImportOption) (*RecordBatch, error) {
	if err := cstruct.CheckOrder(in.Names.Name, in.Array, schemaMirror(sch)); err != nil {
		return nil, err
	}
	s, err := schema.ImportSchema(schemaMirror(sch))
	o := importOptionsFor(in, opts)
	if err != nil {
		o.Discard(in)
		return nil, err
	}
	return importBatch(in, s, false, o)
}

// importBatch gives the batch the schema itself or, if it is in a variable of the program's, a copy.
func importBatch(in *cstruct.Input, s *arrow.Schema, variable bool, o *importOptions) (*RecordBatch, error) {
	if err := cstruct.CheckTop(in); err != nil {
		return nil, err
	}
	plan, nodes, err := cstruct.CheckColumns(in, s)
	if err != nil {
		o.Discard(in)
		return nil, err
	}
	b := new(importedBatch)
	b.owner.Adopt(in.Array)
	if err := o.TakeOver(&b.owner, in, &b.location); err != nil {
		return nil, err
	}
	root := b.owner.Imported()
	b.source.Plan, b.source.Root, b.source.Mem = plan, root, &b.owner
	b.source.ReplaceNulls = replacesNulls(&b.location)
	if nodes == nil {
		b.own.SetSource(len(plan.Flat), &b.source)
	} else {
		b.own.SetMade(b.source.Made(nodes))
	}
	if variable {
		s = &plan.Schema
	}
	b.start(&b.owner, s, root.Length, &b.own)
	return &b.RecordBatch, nil
}

// importedBatch is a batch and all that its import needs, in one allocation.
type importedBatch struct {
	RecordBatch
	owner  tree.Owner
	source cstruct.Columns
	own    tree.Columns
}

func importArrayAndSchema(in *cstruct.Input, sch *cdata.CArrowSchema, opts []ImportOption) (*Array, error) {
	if err := cstruct.CheckOrder(in.Names.Name, in.Array, schemaMirror(sch)); err != nil {
		return nil, err
	}
	field, err := schema.Import(schemaMirror(sch))
	o := importOptionsFor(in, opts)
	if err != nil {
		o.Discard(in)
		return nil, err
	}
	return importArray(in, field, o)
}

func importArray(in *cstruct.Input, field arrow.Field, o *importOptions) (*Array, error) {
	if err := cstruct.CheckTop(in); err != nil {
		return nil, err
	}
	if argument.IsNil(field.Type) {
		o.Discard(in)
		return nil, fielderr.Absent(fielderr.OpImport, "type", "a data type")
	}
	root, err := cstruct.ImportArray(in, field.Type)
	if err != nil {
		o.Discard(in)
		return nil, err
	}
	mem := tree.Adopt(in.Array)
	var at tree.Location
	if err := o.TakeOver(mem, in, &at); err != nil {
		return nil, err
	}
	if replacesNulls(&at) {
		mem.ReplaceNulls(root)
	}
	return newArray(mem, at, field, root[0]), nil
}

// replacesNulls reports whether consumers of the memory may be programs of the CPU, some of which
// reject NULL buffers; see [tree.Owner.ReplaceNulls].
func replacesNulls(at *tree.Location) bool { return at.ID.Type.CPUAccessible() || at.Assumed }
