package cdevice_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Close waits for uses of a batch on behalf of the reader, besides the source.

// The device reads the batches in page-locked memory later.
func TestGPUCloseOfTheSourceWaitsForTheDevice(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		file := mappedFile(t, 6)
		locked, err := hostpinned.Register(gpu, file, hostpinned.WithReadOnly())
		require.NoError(t, err)
		rdr := inPlace(t, file, 3)
		r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
		require.NoError(t, err)
		rdr.Release()
		stream := newStream(t, gpu)
		open := m.Hold(t, stream)
		c, err := r.CopyTo(background, gpu, cdevice.WithStream(stream))
		require.NoError(t, err)
		require.True(t, c.Next())
		expires(t, r.Close)
		open()
		closes(t, r)
		require.NoError(t, locked.Unregister(background))
		require.NoError(t, syscall.Munmap(file))
		back, err := c.RecordBatch().CopyToHost(background, nil)
		require.NoError(t, err)
		numbers := back.Column(0).(*array.Int64).Int64Values()
		assert.EqualValues(t, 0x0101010101010101, numbers[len(numbers)-1])
		back.Release()
		c.Release()
		r.Release()
		closes(t, c)
		require.NoError(t, gpu.Flush(background))
	})
}

// Close waits for a call that takes a batch until the batch is viewed, copied or exported; it ends
// the waits of readers that were made from its own.
func TestGPUCloseWaitsForEvents(t *testing.T) {
	checkLeaks(t)
	for _, how := range []string{"HostReader", "AsCPU"} {
		t.Run(how, func(t *testing.T) {
			m := cudatest.One(t, cudasim.Options{})
			gpu := m.GPUs[0]
			producer := newStream(t, gpu)
			open := m.Hold(t, producer)
			mem, err := gpu.Pinned().Allocate(background, 80, nil)
			require.NoError(t, err)
			ready, err := gpu.NewEvent()
			require.NoError(t, err)
			require.NoError(t, producer.Record(ready))
			pending, err := cdevice.NewRecordBatch(gpu.Pinned(), numberedSchema, 10, []cdevice.ArrayData{{Length: 10, Buffers: []device.Ptr{0, mem.Ptr()}}},
				cdevice.Lifetime{Ready: ready, Release: func() { mem.Free(nil) }})
			require.NoError(t, err)
			next, taken := nextOf(nil, pending), make(chan struct{})
			r, err := readerFunc(numberedSchema, device.CUDAHost, func() (*cdevice.RecordBatch, error) {
				close(taken)
				return next()
			}, nil)
			require.NoError(t, err)
			returned := make(chan struct{})
			begin := r.HostReader(background, nil)
			s := new(cdata.CArrowArrayStream)
			cpu, err := r.AsCPU(background)
			require.NoError(t, err)
			require.NoError(t, cdevice.ExportRecordReader(cpu, s))
			cpu.Release()
			go func() {
				defer close(returned)
				if how == "HostReader" {
					begin.Next()
					return
				}
				out := new(cdata.CArrowArray)
				if bridge.CallPlainGetNext(plainStream(s), plainArray(out)) == 0 && plainArray(out).Release != 0 {
					cdevice.ReleaseStruct(out)
				}
			}()
			<-taken
			time.Sleep(20 * time.Millisecond) // the batch is taken, and its event waited for
			if how == "HostReader" {
				expires(t, r.Close)
				open()
			}
			closes(t, r)
			<-returned
			if how == "AsCPU" { // whose wait Close ends
				open()
			}
			begin.Release()
			cdevice.ReleaseStruct(s)
			r.Release()
			pending.Release()
			require.NoError(t, gpu.Flush(background))
		})
	}
}
