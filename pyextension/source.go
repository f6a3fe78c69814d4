//go:build cgo && unix

package pyextension

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// form is how a request has an Arrow object.
type form byte

const (
	formObject       form = 1  // uint64 handle of an object of this library
	formDeviceArray  form = 2  // uint64 address of an ArrowSchema, uint64 address of an ArrowDeviceArray
	formArray        form = 3  // the same with an ArrowArray
	formDeviceStream form = 4  // uint64 address of an ArrowDeviceArrayStream
	formStream       form = 5  // uint64 address of an ArrowArrayStream
	formTensor       form = 6  // uint64 address of a DLManagedTensorVersioned, int64 stream
	formLegacyTensor form = 7  // uint64 address of a DLManagedTensor, int64 stream
	formCUDAArray    form = 8  // uint64 address of the Python object, which is dropped; the dict of its __cuda_array_interface__
	formSchema       form = 9  // uint64 address of an ArrowSchema
	formIterable     form = 10 // uint64 address of a capi.Source, which is handed over

	ofColumn form = 0x80 // added to the form of a stream for a parameter of type any: it has the chunks of a column
)

// source is an Arrow object of a request. It owns its structs and references until it is imported or discarded,
// which happens once.
type source struct {
	form     form
	column   bool  // with formDeviceStream and formStream
	err      error // why it cannot be imported
	object   *object
	memory   *cMemory
	schema   *abi.ArrowSchema      // moved, or nil
	data     *abi.ArrowDeviceArray // the memory of the struct of the form, moved, or nil: it is the largest one
	tensor   uintptr               // the producer's own struct, or 0
	stream   int64                 // of the tensor
	owner    uintptr
	array    *cdevice.Array // of formCUDAArray
	iterable capi.Source    // or 0
}

// requestReader reads a request.
type requestReader struct {
	decoder
	sources []*source // moved out of their C structs at once, also if reading fails

	sourcesMemory [2]*source
}

func newRequest(data []byte) *requestReader {
	d := &requestReader{}
	d.begin(data)
	return d
}

func (d *requestReader) begin(data []byte) {
	d.decoder, d.sources = decoder{data, d}, d.sourcesMemory[:0]
}

// discard releases the objects that no call has taken over.
func (d *requestReader) discard() {
	for _, s := range d.sources {
		s.discard()
	}
}

// source reads an Arrow object and takes its contents over.
func (d *requestReader) source() (*source, error) {
	b, err := d.take(1)
	if err != nil {
		return nil, err
	}
	s := &source{form: form(b[0]) &^ ofColumn, column: form(b[0])&ofColumn != 0}
	first, err := d.address()
	if err != nil {
		return nil, err
	}
	d.sources = append(d.sources, s)
	switch s.form {
	case formObject:
		s.object, s.err = use(handle.Word(first))
	case formDeviceArray, formArray:
		second, err := d.address()
		if err != nil {
			return nil, err
		}
		s.err = errors.Join(s.moveSchema(first), s.moveData(second))
	case formDeviceStream, formStream:
		s.err = s.moveData(first)
	case formSchema:
		s.err = s.moveSchema(first)
	case formIterable:
		s.iterable = capi.Source(first)
	case formTensor, formLegacyTensor:
		s.tensor = first
		s.stream, err = d.int64()
	case formCUDAArray:
		s.owner = first
		v, failed := d.value()
		if failed != nil {
			return nil, failed
		}
		members, _ := v.(dict)
		s.array, s.err = s.cudaArray(members)
	default:
		return nil, fmt.Errorf("request: unknown form %d of an Arrow object", s.form)
	}
	return s, err
}

// underGIL are the options of imports: what is released is that of Python's main interpreter.
var underGIL = []cdevice.ImportOption{cdevice.WithReleaser(capi.WithGIL)}

// cStruct describes a C struct.
type cStruct struct {
	number          byte // of a capsule in a reply: see capsule.c
	name            string
	size, releaseAt uintptr
	release         func(uintptr)
}

var (
	schemaStruct = cStruct{
		0, "ArrowSchema", unsafe.Sizeof(abi.ArrowSchema{}), unsafe.Offsetof(abi.ArrowSchema{}.Release),
		func(at uintptr) { cdevice.ReleaseStruct(cdevice.SchemaFromPtr(at)) },
	}
	plainArrayStruct = cStruct{
		1, "ArrowArray", unsafe.Sizeof(abi.ArrowArray{}), unsafe.Offsetof(abi.ArrowArray{}.Release),
		func(at uintptr) { cdevice.ReleaseStruct(cdevice.ArrayFromPtr(at)) },
	}
	deviceArrayStruct = cStruct{
		2, "ArrowDeviceArray", unsafe.Sizeof(abi.ArrowDeviceArray{}), unsafe.Offsetof(abi.ArrowArray{}.Release),
		func(at uintptr) { cdevice.ReleaseStruct(cdevice.DeviceArrayFromPtr(at)) },
	}
	plainStreamStruct = cStruct{
		3, "ArrowArrayStream", unsafe.Sizeof(abi.ArrowArrayStream{}), unsafe.Offsetof(abi.ArrowArrayStream{}.Release),
		func(at uintptr) { cdevice.ReleaseStruct(cdevice.ArrayStreamFromPtr(at)) },
	}
	deviceStreamStruct = cStruct{
		4, "ArrowDeviceArrayStream", unsafe.Sizeof(abi.ArrowDeviceArrayStream{}), unsafe.Offsetof(abi.ArrowDeviceArrayStream{}.Release),
		func(at uintptr) { cdevice.ReleaseStruct(cdevice.DeviceArrayStreamFromPtr(at)) },
	}
)

// cStructs are those that a form has beside a schema.
var cStructs = map[form]cStruct{
	formDeviceArray: deviceArrayStruct, formArray: plainArrayStruct, formDeviceStream: deviceStreamStruct, formStream: plainStreamStruct,
}

// move moves the contents of a struct.
func (c cStruct) move(from uintptr, to unsafe.Pointer) error {
	if from == 0 {
		return valueErrorf("the %s is NULL", c.name)
	}
	release := abi.At[uintptr](from + c.releaseAt)
	if *release == 0 {
		return valueErrorf("the %s was consumed or released before", c.name)
	}
	copy(unsafe.Slice((*byte)(to), c.size), abi.Slice[byte](from, int(c.size)))
	*release = 0
	return nil
}

func (s *source) moveSchema(from uintptr) error {
	err := schemaStruct.move(from, unsafe.Pointer(&s.moved().schema))
	if err == nil {
		s.schema = &s.memory.schema
	}
	return err
}

// moved is the memory of structs of C. It is apart from the source, as C may have no pointers to memory with those of Go.
func (s *source) moved() *cMemory {
	if s.memory == nil {
		s.memory = &cMemory{}
	}
	return s.memory
}

type cMemory struct {
	schema abi.ArrowSchema
	data   abi.ArrowDeviceArray
}

func (s *source) moveData(from uintptr) error {
	err := cStructs[s.form].move(from, unsafe.Pointer(&s.moved().data))
	if err == nil {
		s.data = &s.memory.data
	}
	return err
}

// The structs of the forms, as package cdevice has them. Imports leave them released.

func (s *source) cSchema() *cdata.CArrowSchema {
	return cdevice.SchemaFromPtr(uintptr(unsafe.Pointer(s.schema)))
}

func (s *source) at() uintptr { return uintptr(unsafe.Pointer(s.data)) }

// discard releases the object, unless it was imported.
func (s *source) discard() {
	if s.object != nil {
		s.object.drop()
	}
	if s.schema != nil {
		schemaStruct.release(uintptr(unsafe.Pointer(s.schema)))
	}
	if s.data != nil {
		cStructs[s.form].release(s.at())
	}
	if s.tensor != 0 {
		s.discardTensor()
	}
	if s.owner != 0 {
		capi.DropPythonObject(s.owner)
	}
	if s.array != nil {
		s.array.Release()
	}
	if s.iterable != 0 {
		s.iterable.Release()
	}
	*s = source{form: s.form, err: errUsed}
}

var errUsed = errors.New("the object was used before")

func (s *source) recordReader(sc *scope) (*cdevice.RecordReader, error) {
	r, err := s.importReader(sc)
	return r, explainColumn(err)
}

func (s *source) importReader(sc *scope) (*cdevice.RecordReader, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.form == formDeviceStream:
		return owned[*cdevice.RecordReader](sc)(cdevice.ImportRecordReader(cdevice.DeviceArrayStreamFromPtr(s.at()), underGIL...))
	case s.form == formStream:
		return owned[*cdevice.RecordReader](sc)(cdevice.ImportRecordReader(cdevice.ArrayStreamFromPtr(s.at()), underGIL...))
	case s.form == formIterable:
		source := s.iterable
		s.iterable = 0
		return owned[*cdevice.RecordReader](sc)(newIterable(source, sc))
	case s.form == formObject && s.object.kind == kindReader:
		sc.under(s.object.reader.scope)
		return s.object.reader.take("a call of this library")
	}
	b, err := s.recordBatch(sc)
	if err != nil {
		return nil, err
	}
	return owned[*cdevice.RecordReader](sc)(readerOf(b))
}

// readerOf makes a reader of one batch.
func readerOf(b *cdevice.RecordBatch) (*cdevice.RecordReader, error) {
	b.Retain()
	rest := []*cdevice.RecordBatch{b}
	return cdevice.NewRecordReaderFunc(context.Background(), b.Schema(), b.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
		return takeFirst(&rest)
	}, func() { releaseAll(rest) })
}

func (s *source) recordBatch(sc *scope) (*cdevice.RecordBatch, error) {
	b, err := s.importBatch(sc)
	return b, explainColumn(err)
}

// explainColumn makes the error of a column, which was given for a table, one that a user of Python can read.
func explainColumn(err error) error {
	if err == nil {
		return nil
	}
	var wrong *cdevice.FieldError
	if errors.As(err, &wrong) && strings.HasSuffix(wrong.Field, "ArrowSchema.format") && fmt.Sprint(wrong.Want) == "+s" {
		return &exception{kind: "TypeError", text: fmt.Sprintf("a column is no table or record batch (its format is %q)", fmt.Sprint(wrong.Got)), err: err}
	}
	return err
}

func (s *source) importBatch(sc *scope) (*cdevice.RecordBatch, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.form == formDeviceArray:
		return owned[*cdevice.RecordBatch](sc)(cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(s.at()), s.cSchema(), underGIL...))
	case s.form == formArray:
		return owned[*cdevice.RecordBatch](sc)(cdevice.ImportRecordBatch(cdevice.ArrayFromPtr(s.at()), s.cSchema(), underGIL...))
	case s.form == formObject && s.object.kind == kindBatch:
		return s.object.batch, nil
	case s.form == formDeviceStream, s.form == formStream, s.form == formObject && s.object.kind == kindReader:
		r, err := s.recordReader(sc)
		if err != nil {
			return nil, err
		}
		return owned[*cdevice.RecordBatch](sc)(collect(sc.context(), r))
	}
	return nil, s.refuse(kindBatch)
}

func (s *source) anArray(sc *scope) (*cdevice.Array, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.form == formDeviceArray:
		return owned[*cdevice.Array](sc)(cdevice.ImportArray(cdevice.DeviceArrayFromPtr(s.at()), s.cSchema(), underGIL...))
	case s.form == formArray:
		return owned[*cdevice.Array](sc)(cdevice.ImportArray(cdevice.ArrayFromPtr(s.at()), s.cSchema(), underGIL...))
	case s.form == formObject && s.object.kind == kindArray:
		return s.object.array, nil
	case s.form == formDeviceStream:
		r, err := owned[*cdevice.ArrayReader](sc)(cdevice.ImportArrayReader(cdevice.DeviceArrayStreamFromPtr(s.at()), underGIL...))
		if err != nil {
			return nil, err
		}
		return owned[*cdevice.Array](sc)(collectArrays(sc.context(), r))
	case s.form == formStream:
		r, err := owned[*cdevice.ArrayReader](sc)(cdevice.ImportArrayReader(cdevice.ArrayStreamFromPtr(s.at()), underGIL...))
		if err != nil {
			return nil, err
		}
		return owned[*cdevice.Array](sc)(collectArrays(sc.context(), r))
	case s.form == formTensor, s.form == formLegacyTensor:
		return owned[*cdevice.Array](sc)(s.importTensor())
	case s.form == formCUDAArray:
		return s.array, nil
	}
	return nil, s.refuse(kindArray)
}

func (s *source) aSchema() (*arrow.Schema, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.form == formSchema:
		return cdevice.ImportSchema(s.cSchema())
	case s.form == formObject:
		return s.object.schemaOf()
	}
	return nil, s.refuse(kindSchema)
}

// anything imports the object as the type that it declares, for a parameter of type any.
func (s *source) anything(sc *scope) (any, error) {
	switch s.form {
	case formDeviceStream, formStream:
		if s.column {
			return s.anArray(sc)
		}
		return s.recordReader(sc)
	case formIterable: // for a parameter that Python takes for a reader
		return s.recordReader(sc)
	case formSchema:
		return s.aSchema()
	case formTensor, formLegacyTensor, formCUDAArray:
		return s.anArray(sc)
	case formDeviceArray, formArray:
		if s.err == nil && abi.String(s.schema.Format) == "+s" {
			return s.recordBatch(sc)
		}
		return s.anArray(sc)
	}
	if s.err != nil {
		return nil, s.err
	}
	switch s.object.kind {
	case kindBatch:
		return s.object.batch, nil
	case kindReader:
		return s.recordReader(sc)
	case kindSchema:
		return s.object.schema, nil
	}
	return s.object.array, nil
}

func (s *source) refuse(want kind) error {
	got := "an object of another kind"
	if s.object != nil {
		got = "arrowdevice." + s.object.kind.String()
	}
	return typeErrorf("a %s is wanted, not %s", want, got)
}

func (s *source) hostReader(sc *scope) (array.RecordReader, error) {
	r, err := s.recordReader(sc)
	if err != nil {
		return nil, err
	}
	if !r.DeviceType().CPUAccessible() {
		return nil, errNotCPU
	}
	rdr := r.HostReader(sc.context(), nil)
	sc.defers(rdr)
	return rdr, nil
}

func (s *source) hostBatch(sc *scope) (arrow.RecordBatch, error) {
	b, err := s.recordBatch(sc)
	if err != nil {
		return nil, err
	}
	if !b.DeviceID().Type.CPUAccessible() {
		return nil, errNotCPU
	}
	return owned[arrow.RecordBatch](sc)(b.HostView(sc.context()))
}

func (s *source) hostArray(sc *scope) (arrow.Array, error) {
	a, err := s.anArray(sc)
	if err != nil {
		return nil, err
	}
	if !a.DeviceID().Type.CPUAccessible() {
		return nil, errNotCPU
	}
	return owned[arrow.Array](sc)(a.HostView(sc.context()))
}

func (s *source) table(sc *scope) (arrow.Table, error) {
	rdr, err := s.hostReader(sc)
	if err != nil {
		return nil, err
	}
	var batches []arrow.RecordBatch
	defer func() { releaseAll(batches) }()
	for rdr.Next() {
		b := rdr.RecordBatch()
		b.Retain()
		batches = append(batches, b)
	}
	if err := rdr.Err(); err != nil {
		return nil, err
	}
	t := array.NewTableFromRecords(rdr.Schema(), batches)
	sc.defers(t)
	return t, nil
}

func pythonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, uint64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case []any:
		return "list"
	case dict:
		return "dict"
	case *source:
		if v.object != nil {
			return "arrowdevice." + v.object.kind.String()
		}
		return "an object with Arrow data"
	}
	return fmt.Sprintf("%T", v)
}
