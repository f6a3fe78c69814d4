//go:build cgo && unix

package pyextension

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// iterated is a reader of array.ReaderFromIter, with batches of one row.
func iterated(n int64) array.RecordReader {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	return array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		defer b.Release()
		for i := range n {
			b.Field(0).(*array.Int64Builder).Append(i)
			if !yield(b.NewRecordBatch(), nil) { // the reader releases it
				return
			}
		}
	})
}

// wrappedReader wraps a reader, which it takes.
func wrappedReader(r array.RecordReader) (*cdevice.RecordReader, error) {
	defer r.Release()
	return cdevice.WrapRecordReader(r, device.CPUDevice())
}

// askOnThread performs a call as a thread of Python does that is not the main one.
func askOnThread(t *testing.T, name string, args ...any) (got reply) {
	t.Helper()
	req := request(t, name, args...)
	cpeer.CallBack(func() {
		var r copied
		if assert.Zero(t, server{}.Call(req, capi.Caller{}, 0, &r)) {
			got = decodeReply(t, r.data)
		}
	})
	return got
}

// The process ends where such a reader is read or released on a thread of Python.
func TestIteratorOfArrowGoIsAResult(t *testing.T) {
	type holder struct{ array.RecordReader }
	ways := map[string]any{
		"without a context": func() array.RecordReader { return iterated(3) },
		"with a context":    func(context.Context) (array.RecordReader, error) { return iterated(3), nil },
		"of type any":       func() any { return iterated(3) },
		"held by another":   func() array.RecordReader { return &holder{iterated(3)} },
		"wrapped":           func() (*cdevice.RecordReader, error) { return wrappedReader(iterated(3)) },
		"of a goroutine": func() (*cdevice.RecordReader, error) {
			made := make(chan array.RecordReader)
			go func() { made <- iterated(3) }()
			return wrappedReader(<-made)
		},
	}
	threads := map[string]func(*testing.T, string, ...any) reply{"the main thread": ask, "another thread": askOnThread}
	for way, f := range ways {
		for calls, call := range threads {
			for reads, read := range threads {
				t.Run(way+", called by "+calls+", read by "+reads, func(t *testing.T) {
					nothingIsLeft(t)
					register(t, "f", f)
					made := func() uint64 { return call(t, "f").value.(replied).handle }
					release := func(handle uint64) { cpeer.CallBack(func() { server{}.Release(handle) }) }

					unread := made()
					release(unread)

					half := made()
					next := read(t, ".next", own1(half)).value.(replied)
					assert.EqualValues(t, 1, next.rows)
					release(next.handle)
					release(half)

					lent := made()
					assert.Equal(t, cpeer.Drained{Format: true, Batches: 3, Sum: 3}, drain(t, lent))
					release(lent)
				})
			}
		}
	}
}

// drain exports a reader, and has a consumer in C read it.
func drain(t *testing.T, handle uint64) cpeer.Drained {
	t.Helper()
	_, data := callInMain(request(t, ".export", own1(handle), "stream"), 0)
	require.Equal(t, []byte{wireResult, wireStruct, plainStreamStruct.number}, data[:3])
	at := uintptr(binary.LittleEndian.Uint64(data[3:]))
	defer capi.Free(at)
	return cpeer.Drain(abi.At[abi.ArrowArrayStream](at))
}
