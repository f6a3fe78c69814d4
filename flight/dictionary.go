package flight

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
)

// dictionary validates the values of a dictionary, or of a delta. arrow-go does not check offsets and lengths before it joins
// them with those before, and allocates as much as they demand. body is borrowed, and may be changed.
func (m *messages) dictionary(message ipcmessage.Message, metadata []byte, body *memory.Buffer) error {
	schema, ok := m.values[message.ID]
	switch {
	case ok:
		return m.validate(schema, metadata, body)
	case message.Delta:
		return &Error{"DictionaryBatch", "a delta of a dictionary whose values have dictionaries", arrow.ErrNotImplemented}
	}
	return nil
}

// validate reads the values as a batch of their own.
func (m *messages) validate(schema *arrow.Schema, metadata []byte, body *memory.Buffer) error {
	payload := ipc.GetSchemaPayload(schema, flightdata.HeapMemory)
	first := ipc.NewMessage(payload.Meta(), memory.NewBufferBytes(nil))
	values, err := ipcmessage.ValuesOf(metadata)
	if err != nil {
		return malformed(err)
	}
	second := ipc.NewMessage(memory.NewBufferBytes(values), body)
	defer second.Release()
	r, err := ipc.NewReaderFromMessageReader(&list{first, second}, ipc.WithAllocator(flightdata.HeapMemory))
	if err != nil {
		return unread(err)
	}
	defer r.Release()
	if !r.Next() {
		return invalid("DictionaryBatch", "not read: %v", r.Err())
	}
	b, err := cdevice.WrapRecordBatch(r.RecordBatch(), device.CPUDevice())
	if err == nil {
		defer b.Release()
		err = b.ValidateFull(m.stream.Context())
	}
	if err != nil && !hasStatus(err) {
		err = &Error{"DictionaryBatch", "values", err}
	}
	return err
}

// withOwnDictionaries returns a batch, owned by the caller, that shares no dictionary object with arrow-go's reader. The
// reader writes later dictionaries into those objects, and releases them once too often if it fails to join a delta (for
// example where offsets exceed 32 bits, or the bitmap of nulls is empty).
func withOwnDictionaries(rec arrow.RecordBatch) arrow.RecordBatch {
	columns, changed := make([]arrow.Array, rec.NumCols()), false
	defer func() {
		for _, c := range columns {
			if c != nil { // a constructor of arrow-go panicked
				c.Release()
			}
		}
	}()
	for i, c := range rec.Columns() {
		data := ownDictionaries(c.Data())
		defer data.Release()
		if data == c.Data() {
			c.Retain()
			columns[i] = c
			continue
		}
		columns[i], changed = array.MakeFromData(data), true
	}
	if !changed {
		rec.Retain()
		return rec
	}
	return array.NewRecordBatchWithMetadata(rec.Schema(), columns, rec.NumRows(), metadataOf(rec))
}

// metadataOf returns the custom metadata of a batch.
func metadataOf(rec arrow.RecordBatch) (md arrow.Metadata) {
	if with, ok := rec.(arrow.RecordBatchWithMetadata); ok {
		md = with.Metadata()
	}
	return md
}

// ownDictionaries returns the data, with a reference, or, if it has dictionaries, new data over the same buffers.
func ownDictionaries(a arrow.ArrayData) arrow.ArrayData {
	children, changed := make([]arrow.ArrayData, len(a.Children())), false
	for i, child := range a.Children() {
		// mutant: child.Retain(); children[i] = child
		children[i] = ownDictionaries(child)
		defer children[i].Release()
		changed = changed || children[i] != child
	}
	d, _ := a.Dictionary().(*array.Data)
	if d == nil && !changed {
		a.Retain()
		return a
	}
	own := sameData(a, children)
	if d != nil {
		// mutant: d.Retain(); values := arrow.ArrayData(d)
		values := ownDictionaries(d)
		defer values.Release()
		if values == arrow.ArrayData(d) { // mutant: never
			copied := sameData(d, d.Children())
			defer copied.Release()
			values = copied
		}
		own.SetDictionary(values)
	}
	return own
}

// sameData returns new data of the same type and buffers, without the dictionary.
func sameData(a arrow.ArrayData, children []arrow.ArrayData) *array.Data {
	return array.NewData(a.DataType(), a.Len(), a.Buffers(), children, a.NullN(), a.Offset())
}

// list is a MessageReader of borrowed messages.
type list []*ipc.Message

var _ ipc.MessageReader = (*list)(nil)

func (l *list) Message() (*ipc.Message, error) {
	if len(*l) == 0 {
		return nil, io.EOF
	}
	m := (*l)[0]
	*l = (*l)[1:]
	return m, nil
}

func (*list) Retain()  {}
func (*list) Release() {}
