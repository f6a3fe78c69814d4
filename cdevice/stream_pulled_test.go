package cdevice_test

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Readers of array.ReaderFromIter use iter.Pull. Where it is resumed under another lock of goroutine and thread than it
// was made under, the process ends, and these tests with it.

// pulled returns a reader of array.ReaderFromIter, with n batches and an error after them.
func pulled(t *testing.T, n int, err error) array.RecordReader {
	return array.ReaderFromIter(numberedSchema, func(yield func(arrow.RecordBatch, error) bool) {
		for _, b := range numbered(t, n) {
			view := viewOf(t, b)
			view.Retain() // for the reader
			if !yield(view, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	})
}

// exportPulled exports a reader, which it takes.
func exportPulled(t *testing.T, rdr array.RecordReader) *cdata.CArrowArrayStream {
	defer rdr.Release()
	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	require.NoError(t, err)
	return exportPlain(t, r)
}

var (
	allOfPulled   = cpeer.Drained{Format: true, Batches: 20, Sum: 190}
	firstOfPulled = cpeer.Drained{NextCode: errno.Code(syscall.EIO), Text: true, Format: true, Batches: 3, Sum: 3}
	noneOfPulled  = cpeer.Drained{NextCode: errno.Code(syscall.EINVAL), Text: true, Format: true}
)

func TestCProgramReadsIteratorsOfArrowGo(t *testing.T) {
	checkLeaks(t)
	for name, drain := range map[string]func(*abi.ArrowArrayStream) cpeer.Drained{"here": cpeer.DrainHere, "on a thread of C": cpeer.Drain} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, allOfPulled, drain(plainStream(exportPulled(t, pulled(t, 20, nil)))))
			assert.Equal(t, firstOfPulled, drain(plainStream(exportPulled(t, pulled(t, 3, errSource)))))
		})
	}
	cdevice.ReleaseStruct(exportPulled(t, pulled(t, 3, nil))) // never read
	readOne(t, exportPulled(t, pulled(t, 3, nil)))
}

// readOne reads one batch of three and releases the stream, in Go.
func readOne(t *testing.T, s *cdata.CArrowArrayStream) {
	t.Helper()
	r, err := cdata.ImportCRecordReader(s, nil)
	require.NoError(t, err)
	rec, err := r.Read()
	require.NoError(t, err)
	rec.Release()
	r.(array.RecordReader).Release()
}

// As in a driver whose functions are called by C.
func TestCallbackMakesIteratorOfArrowGo(t *testing.T) {
	for name, callAndDrain := range map[string]func(func(), *abi.ArrowArrayStream) cpeer.Drained{
		"here": cpeer.CallAndDrain, "on a thread of C": cpeer.CallAndDrainOnThread,
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			drained := func(n int, err error) cpeer.Drained {
				out := new(cdata.CArrowArrayStream)
				return callAndDrain(func() { *out = *exportPulled(t, pulled(t, n, err)) }, plainStream(out))
			}
			assert.Equal(t, allOfPulled, drained(20, nil))
			assert.Equal(t, firstOfPulled, drained(3, errSource))
		})
	}
}

// Each of them would end the process.
func TestCallbackMakesIteratorOfArrowGoForAnother(t *testing.T) {
	checkLeaks(t)
	inCallback := func(do func(s *cdata.CArrowArrayStream)) {
		t.Helper()
		cpeer.CallBack(func() { do(exportPulled(t, pulled(t, 3, nil))) })
	}
	var made *cdata.CArrowArrayStream
	make := func(s *cdata.CArrowArrayStream) { made = s }
	check := func(got cpeer.Drained) {
		t.Helper()
		assert.Equal(t, noneOfPulled, got)
	}

	inCallback(make)
	check(cpeer.Drain(plainStream(made)))
	inCallback(func(s *cdata.CArrowArrayStream) { check(cpeer.Drain(plainStream(s))) })
	inCallback(func(s *cdata.CArrowArrayStream) { check(cpeer.DrainHere(plainStream(s))) }) // one callback deeper
	inCallback(make)
	cpeer.CallBack(func() { check(cpeer.DrainHere(plainStream(made))) })
	inCallback(make)
	cdevice.ReleaseStruct(made) // the iterator ends when the next one is wrapped
	inCallback(func(s *cdata.CArrowArrayStream) { cdevice.ReleaseStruct(s) })
	inCallback(func(s *cdata.CArrowArrayStream) { noneByImport(t, s) })
}

// An import reads it in callbacks, too.
func noneByImport(t *testing.T, s *cdata.CArrowArrayStream) {
	t.Helper()
	r, err := cdevice.ImportRecordReader(s)
	require.NoError(t, err)
	defer r.Release()
	_, err = numbersOf(t, r.All())
	assert.ErrorContains(t, err, "make it with cdevice.NewRecordReader: invalid")
}

func TestLockedThreadMakesIteratorOfArrowGo(t *testing.T) {
	checkLeaks(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	assert.Equal(t, noneOfPulled, cpeer.DrainHere(plainStream(exportPulled(t, pulled(t, 3, nil)))))
	assert.Equal(t, noneOfPulled, cpeer.Drain(plainStream(exportPulled(t, pulled(t, 3, nil)))))
	noneByImport(t, exportPulled(t, pulled(t, 3, nil)))
}
