package triton

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A transfer is a batch that is to be copied to the memory of a system region. It holds the batch until release.
type transfer struct {
	batch   *cdevice.RecordBatch
	tensors []Tensor // without offsets
	from    []source
	size    int64 // of all tensors, each aligned
}

// A source is where the elements of a tensor come from: from memory of the batch's device that is copied as it is, or from an array
// that is encoded.
type source struct {
	at      device.Ptr
	encoded *encoder // nil for memory
}

// newTransfer plans to copy a batch, whose memory it waits for. It reads nulls and lengths.
func newTransfer(ctx context.Context, batch *cdevice.RecordBatch, o *regionOptions) (*transfer, error) {
	held, err := batch.Slice(0, batch.NumRows())
	if err != nil {
		return nil, err
	}
	t := &transfer{batch: held}
	if err := t.plan(ctx, o); err != nil {
		t.release()
		return nil, err
	}
	return t, nil
}

func (t *transfer) plan(ctx context.Context, o *regionOptions) error {
	if t.batch.NumCols() == 0 {
		return fielderr.Invalid(opRegion, "RecordBatch.NumCols", 0, "at least 1")
	}
	if err := t.batch.Synchronize(ctx); err != nil {
		return err
	}
	for i := range t.batch.NumCols() {
		if err := t.add(ctx, i); err != nil {
			return ofColumn(t.batch.Schema().Field(i).Name, err)
		}
	}
	if err := checkTensors(t.tensors); err != nil {
		return err
	}
	return o.reshape(t.tensors)
}

// add plans to copy a column.
func (t *transfer) add(ctx context.Context, i int) error {
	column := t.batch.Column(i)
	of, lists, err := elements(column.DataType())
	if err != nil {
		column.Release()
		return err
	}
	rows := column.Len()
	values, err := innermost(ctx, column, lists)
	if err != nil {
		return err
	}
	defer values.Release()
	tensor, err := newTensor(t.batch.Schema().Field(i).Name, of, rows, lists)
	if err != nil {
		return err
	}
	var from source
	if of.form == same {
		from.at = addressOf(values, of)
	} else {
		if from.encoded, err = newEncoder(ctx, values, of); err != nil {
			return err
		}
		tensor.ByteSize = from.encoded.size
	}
	t.tensors, t.from = append(t.tensors, tensor), append(t.from, from)
	t.size += aligned(tensor.ByteSize)
	return nil
}

func aligned(bytes int64) int64 { return (bytes + align - 1) / align * align }

// room returns the bytes that the memory must have: the copy of a batch ends with one more unit.
func (t *transfer) room() int64 { return t.size + align }

func (t *transfer) release() {
	for _, from := range t.from {
		if from.encoded != nil {
			from.encoded.release()
		}
	}
	t.batch.Release()
}

// copyTo copies the columns to memory of at least room bytes, and sets the offsets of the tensors. It calls done, with whether the
// memory has all of them, when nothing accesses the memory any more, which after an error may be later.
func (t *transfer) copyTo(ctx context.Context, memory []byte, done func(whole bool)) error {
	whole := false
	w := newWindow(memory, func() { done(whole) })
	defer w.drop()
	at, err := t.copyUnchanged(ctx, w)
	if err != nil {
		return err
	}
	for i, from := range t.from {
		tensor := &t.tensors[i]
		if tensor.ByteSize == 0 {
			tensor.Offset = align // of 0, Triton computes the last byte as -1
			continue
		}
		if from.encoded == nil {
			continue
		}
		tensor.Offset = at
		if err := from.encoded.encode(ctx, memory[at:at+tensor.ByteSize]); err != nil {
			return ofColumn(tensor.Name, err)
		}
		at += aligned(tensor.ByteSize)
	}
	whole = true
	return nil
}

// copyUnchanged copies the tensors whose elements are those of the columns, in one call: as values of a batch of one row. It returns
// the end of the memory that they take.
func (t *transfer) copyUnchanged(ctx context.Context, w *window) (end int64, err error) {
	var fields []arrow.Field
	var data []cdevice.ArrayData
	var copied []*Tensor
	for i, from := range t.from {
		tensor := &t.tensors[i]
		if from.encoded != nil || tensor.ByteSize == 0 {
			continue
		}
		fields = append(fields, arrow.Field{Name: tensor.Name, Type: &arrow.FixedSizeBinaryType{ByteWidth: int(tensor.ByteSize)}})
		data = append(data, cdevice.ArrayData{Length: 1, Buffers: []device.Ptr{0, from.at}})
		copied = append(copied, tensor)
	}
	if len(fields) == 0 {
		return 0, nil
	}
	dev, err := t.batch.Device()
	if err != nil {
		return 0, err
	}
	t.batch.Retain()
	row, err := cdevice.NewRecordBatch(dev, arrow.NewSchema(fields, nil), 1, data, cdevice.Lifetime{Release: t.batch.Release})
	if err != nil {
		return 0, err
	}
	defer row.Release()
	rec, err := row.CopyToHost(ctx, w)
	if err != nil {
		return 0, err
	}
	defer rec.Release()
	for i, tensor := range copied {
		tensor.Offset = w.offset(rec.Column(i).Data().Buffers()[1])
		end = max(end, tensor.Offset+aligned(tensor.ByteSize))
	}
	return end, nil
}
