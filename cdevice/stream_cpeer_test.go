package cdevice_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// A producer and a consumer of plain streams that are written in C.

func TestPlainStreamOfACProgram(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 1, 20} {
		for name, f := range map[string]batchFunc{"as they are": same, "validated": valid[*cdevice.RecordBatch]} {
			p := cpeer.NewStream(n, -1, 0, "")
			s := garbagePlainStream()
			p.Export(plainStream(s))
			r, err := cdevice.ImportRecordReader(s)
			require.NoError(t, err, name)
			r.Map(f)
			assert.Equal(t, "n", r.Schema().Field(0).Name)
			numbers, err := numbersOf(t, r.All())
			require.NoError(t, err)
			assert.Len(t, numbers, n)
			assert.Zero(t, p.Live(), "each batch was released when the loop moved on")
			assert.Zero(t, p.Released())
			r.Release()
			assert.Equal(t, 1, p.Released())
			p.Free()
		}
	}
}

func TestPlainStreamErrorsOfACProgram(t *testing.T) {
	checkLeaks(t)
	const want = "cdevice: import: ArrowArrayStream.get_next: input/output error (errno 5)"
	for _, row := range []struct {
		text, want string
		silent     bool // without get_last_error
	}{
		{"disk on fire", want + ": disk on fire", false},
		{"", want, false},
		{"disk on fire", want, true},
	} {
		p := cpeer.NewStream(5, 3, int(syscall.EIO), row.text)
		s := garbagePlainStream()
		p.Export(plainStream(s))
		if row.silent {
			plainStream(s).GetLastError = 0
		}
		r, err := cdevice.ImportRecordReader(s)
		require.NoError(t, err)
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, upTo(3), numbers)
		assert.EqualError(t, err, row.want)
		r.Release()
		assert.Equal(t, 1, p.Released())
		assert.Zero(t, p.Live())
		p.Free()
	}
}

// Batches of a C program are kept, and released after their stream.
func TestBatchesOfACProgramOutliveTheirStream(t *testing.T) {
	checkLeaks(t)
	p := cpeer.NewStream(3, -1, 0, "")
	s := garbagePlainStream()
	p.Export(plainStream(s))
	r, err := cdevice.ImportRecordReader(s)
	require.NoError(t, err)
	var kept []*cdevice.RecordBatch
	for b, err := range r.All() {
		require.NoError(t, err)
		b.Retain()
		kept = append(kept, b)
	}
	r.Release()
	assert.Equal(t, 1, p.Released())
	assert.Equal(t, 3, p.Live())
	for i, b := range kept {
		assert.Equal(t, i, numberOf(t, b))
		b.Release()
	}
	assert.Zero(t, p.Live())
	p.Free()
}

func TestCProgramReadsPlainStreams(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 1, 20} {
		s := exportPlain(t, asked(t, nil, numbered(t, n)...))
		got := cpeer.Drain(plainStream(s))
		assert.Equal(t, cpeer.Drained{Format: true, Batches: int64(n), Sum: int64(n * (n - 1) / 2)}, got)
		assert.Zero(t, plainStream(s).Release)
	}
	s := exportPlain(t, iterated(t, errSource, numbered(t, 3)...))
	assert.Equal(t, cpeer.Drained{NextCode: int(syscall.EIO), Text: true, Format: true, Batches: 3, Sum: 3}, cpeer.Drain(plainStream(s)))

	ended, cancel := context.WithCancel(background)
	cancel()
	r := asked(t, nil, numbered(t, 3)...)
	out := garbagePlainStream()
	r = made(t, r)(r.AsCPU(ended))
	require.NoError(t, cdevice.ExportRecordReader(r, out))
	r.Release()
	assert.Equal(t, cpeer.Drained{NextCode: int(syscall.ECANCELED), Text: true, Format: true}, cpeer.Drain(plainStream(out)))
}
