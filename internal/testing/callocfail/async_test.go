//go:build cgo && linux

package callocfail_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/callocfail"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
)

// handlerOf is the handler of a consumer in C.
func handlerOf(c cpeer.Consumer) *cdevice.CArrowAsyncDeviceStreamHandler {
	return abi.As[cdevice.CArrowAsyncDeviceStreamHandler](c.Handler())
}

func TestEachAllocationOfAnAsynchronousExport(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		for kind, make := range sources {
			t.Run(name+"/"+kind, func(t *testing.T) {
				eachFails(t, 2, func(r *trial) error { return exportedAsync(r, make, rec) }) // the schema, and the metadata
			})
		}
	}
}

// exportedAsync exports a stream with metadata whose tasks are dropped.
func exportedAsync(r *trial, make source, rec arrow.RecordBatch) error {
	reader, end := make(r, rec)
	defer end()
	reader.WithMetadata(arrow.NewMetadata([]string{"of"}, []string{"the stream"}))
	c := cpeer.NewConsumer(cpeer.Behaviour{SchemaRequests: 1, SchemaN: 4})
	err := r.during(func() error {
		e, err := cdevice.ExportAsync(context.Background(), reader, handlerOf(c))
		require.NoError(r, err)
		require.NoError(r, c.WaitReleased())
		return e.Wait(context.Background())
	})
	assert.Zero(r, c.Overlaps())
	for i := range c.Tasks() {
		assert.Zero(r, cpeer.Extract(&c.Tasks()[i], nil))
	}
	if err != nil {
		assert.Equal(r, []cpeer.Event{cpeer.OnError, cpeer.Release}, c.Events())
		code, text := c.Error()
		assert.EqualValues(r, syscall.ENOMEM, code)
		assert.Contains(r, text, "cannot allocate memory")
	} else {
		assert.Len(r, c.Tasks(), 3)
		assert.NotZero(r, c.Metadata())
	}
	c.Free()
	return err
}

// The first stream of a process maps memory for the producers of all, after its schema and metadata.
func TestEachAllocationOfTheFirstAsynchronousExport(t *testing.T) {
	needsOverlay(t)
	otherprocess.Start(t, "TestFirstAsynchronousExport", "none").End(0)
}

func TestFirstAsynchronousExport(t *testing.T) {
	otherprocess.Caller(t)
	rec := table(t, "int64")
	first := &trial{T: t, n: 3}
	blocks := callocfail.Live()
	assert.ErrorIs(t, exportedAsync(first, sources["arrow-go's"], rec), syscall.ENOMEM)
	settled(t, func(s cdevice.Stats) bool { return s == cdevice.Stats{} })
	assert.Equal(t, blocks, callocfail.Live())
	assert.NoError(t, exportedAsync(&trial{T: t}, sources["arrow-go's"], rec))
}

// A task that cannot be extracted for lack of memory ends its stream.
func TestEachAllocationOfATask(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		for kind, make := range sources {
			for _, ended := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/ended %t", name, kind, ended), func(t *testing.T) {
					eachFails(t, 1, func(r *trial) error { return extracted(r, make, rec, ended) })
				})
			}
		}
	}
}

// extracted extracts the first task of a stream after its end or before.
func extracted(r *trial, make source, rec arrow.RecordBatch, ended bool) error {
	reader, end := make(r, rec)
	defer end()
	requested := int64(1)
	if ended {
		requested = 3
	}
	c := cpeer.NewConsumer(cpeer.Behaviour{SchemaRequests: 1, SchemaN: requested})
	e, err := cdevice.ExportAsync(context.Background(), reader, handlerOf(c))
	require.NoError(r, err)
	require.NoError(r, c.WaitTasks(int(requested)))
	if ended {
		require.NoError(r, c.WaitReleased())
	}
	task := c.Tasks()[0]
	out := garbage[cdevice.CArrowDeviceArray]()
	err = r.during(func() error {
		if code := cpeer.Extract(&task, abi.As[abi.ArrowDeviceArray](out)); code != 0 {
			return fmt.Errorf("extract_data: %w", syscall.Errno(code))
		}
		return nil
	})
	if err != nil {
		assert.Zero(r, members(out).Release)
		assert.EqualValues(r, syscall.EINVAL, cpeer.Extract(&task, nil), "it is extracted once")
	} else {
		if !ended {
			c.Producer().Cancel()
		}
		b, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema())
		require.NoError(r, err)
		r.keep(b.Release)
		same(r, rec, b)
	}
	require.NoError(r, c.WaitReleased())
	for i := range c.Tasks()[1:] {
		assert.Zero(r, cpeer.Extract(&c.Tasks()[1+i], nil))
	}
	waited := e.Wait(context.Background())
	if err != nil && !ended {
		assert.ErrorIs(r, waited, syscall.ENOMEM)
		code, text := c.Error()
		assert.EqualValues(r, syscall.ENOMEM, code)
		assert.Contains(r, text, "cannot allocate memory")
	}
	c.Free()
	return err
}

// Both sides of an asynchronous stream are of this library.
func TestEachAllocationOfAnAsynchronousPair(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		for kind, make := range sources {
			t.Run(name+"/"+kind, func(t *testing.T) {
				eachFails(t, 1, func(r *trial) error { return throughAsync(r, make, rec) })
			})
		}
	}
}

func throughAsync(r *trial, make source, rec arrow.RecordBatch) error {
	reader, end := make(r, rec)
	defer end()
	ctx := context.Background()
	batches := 0
	err := r.during(func() error {
		handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s, err := cdevice.ImportAsync(ctx, handler, 0)
		require.NoError(r, err)
		defer func() { assert.NoError(r, s.Close(ctx)) }()
		_, err = cdevice.ExportAsync(ctx, reader, handler)
		require.NoError(r, err)
		in, err := s.Reader(ctx)
		if err != nil {
			return err
		}
		defer in.Release()
		for b, err := range in.All() {
			if err != nil {
				return err
			}
			same(r, rec, b)
			batches++
		}
		return nil
	})
	if err == nil {
		assert.Equal(r, 3, batches)
	}
	return err
}

// The same by package cdata.
func TestEachAllocationOfAnAsynchronousPairOfPackageCdata(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		t.Run(name, func(t *testing.T) {
			eachFails(t, 1, func(r *trial) error {
				handler := new(cdata.CArrowAsyncDeviceStreamHandler)
				messages := 0
				err := r.during(func() error {
					streams := cdata.CreateAsyncDeviceStreamHandler(context.Background(), 4, handler)
					to := make(chan cdata.RecordMessage, 3)
					for range 3 {
						rec.Retain()
						to <- cdata.RecordMessage{Record: rec}
					}
					close(to)
					exported := make(chan error, 1)
					go func() { exported <- cdata.ExportAsyncRecordBatchStream(rec.Schema(), to, handler) }()
					var last error
					s := <-streams
					if last = s.Err; last == nil {
						for m := range s.Stream {
							if m.Err != nil {
								last = m.Err
								continue
							}
							assert.Equal(r, rec.NumRows(), m.Record.NumRows())
							m.Record.Release()
							messages++
						}
					}
					if err := <-exported; last == nil {
						last = err
					}
					for m := range to { // what is left
						m.Record.Release()
					}
					return withErrno(last)
				})
				if err == nil {
					assert.Equal(r, 3, messages)
				}
				return err
			})
		})
	}
}

// withErrno returns an error that wraps the errno of an error of package cdata, which arrow-go's type does not.
func withErrno(err error) error {
	var reported cdata.AsyncStreamError
	if errors.As(err, &reported) {
		return fmt.Errorf("%w: %w", err, syscall.Errno(reported.Code))
	}
	return err
}
