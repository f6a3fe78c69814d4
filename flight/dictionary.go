package flight

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
)

// dictionary validates the values of a dictionary, or of a delta. arrow-go joins them with those before without a look
// at offsets and lengths, and allocates what these say. body is borrowed; it may be changed.
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
	payload := ipc.GetSchemaPayload(schema, heapMemory)
	first := ipc.NewMessage(payload.Meta(), memory.NewBufferBytes(nil))
	values, err := ipcmessage.ValuesOf(metadata)
	if err != nil {
		return refused(err)
	}
	second := ipc.NewMessage(memory.NewBufferBytes(values), body)
	defer second.Release()
	r, err := ipc.NewReaderFromMessageReader(&list{first, second}, ipc.WithAllocator(heapMemory))
	if err != nil {
		return named(err)
	}
	defer r.Release()
	if !r.Next() {
		return &Error{"DictionaryBatch", fmt.Sprintf("not read: %v", r.Err()), errInvalid}
	}
	b, err := cdevice.WrapRecordBatch(r.RecordBatch(), device.CPUDevice())
	if err == nil {
		defer b.Release()
		err = b.ValidateFull(m.stream.Context())
	}
	if err != nil && !withStatusOf(err) {
		err = &Error{"DictionaryBatch", "values", err}
	}
	return err
}

// holdDictionaries takes a reference to each dictionary of an array, for good: they are memory of the Go heap. arrow-go
// releases a dictionary once too often if it fails to join a delta to it (offsets that 32 bits do not hold, nulls whose
// bitmap is empty), and batches that were delivered may have it.
func holdDictionaries(a arrow.ArrayData) {
	if d, ok := a.Dictionary().(*array.Data); ok && d != nil {
		d.Retain()
		holdDictionaries(d)
	}
	for _, child := range a.Children() {
		holdDictionaries(child)
	}
}

// list are messages that are there already, borrowed.
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
