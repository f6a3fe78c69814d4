package cdevice_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// A producer and a consumer of plain streams that are written in C: calls of both cross between Go and C.

func TestPlainStreamOfACProgram(t *testing.T) {
	checkLeaks(t)
	failed := errors.New("cdevice: import: ArrowArrayStream.get_next: input/output error (errno 5)")
	withText := fmt.Errorf("%w: disk on fire", failed)
	for _, row := range []struct {
		n    int
		err  error // after them
		text string
		f    batchFunc
	}{
		{0, nil, "", same},
		{20, nil, "", same},
		{20, nil, "", valid[*cdevice.RecordBatch]},
		{3, withText, "disk on fire", same},
		{3, failed, "", same},
	} {
		failAt := -1
		if row.err != nil {
			failAt = row.n
		}
		p := cpeer.NewStream(row.n, failAt, errno.Code(syscall.EIO), row.text)
		s := garbagePlainStream()
		p.Export(plainStream(s))
		r, err := cdevice.ImportRecordReader(s)
		require.NoError(t, err)
		assert.Equal(t, "n", r.Schema().Field(0).Name)
		numbers, err := numbersOf(t, r.Map(row.f).All())
		assert.Equal(t, upTo(row.n), append([]int{}, numbers...))
		assert.Equal(t, fmt.Sprint(row.err), fmt.Sprint(err))
		assert.Zero(t, p.Live(), "each batch was released when the loop moved on")
		assert.Zero(t, p.Released())
		r.Release()
		assert.Equal(t, 1, p.Released())
		p.Free()
	}
}

func TestCProgramReadsPlainStreams(t *testing.T) {
	checkLeaks(t)
	late := asked(t, nil, numbered(t, 3)...)
	late = made(t, late)(late.AsCPU(canceled))
	for _, row := range []struct {
		r    *cdevice.RecordReader
		want cpeer.Drained
	}{
		{asked(t, nil), cpeer.Drained{Format: true}},
		{asked(t, nil, numbered(t, 20)...), cpeer.Drained{Format: true, Batches: 20, Sum: 190}},
		{iterated(t, errSource, numbered(t, 3)...), cpeer.Drained{NextCode: errno.Code(syscall.EIO), Text: true, Format: true, Batches: 3, Sum: 3}},
		{late, cpeer.Drained{NextCode: errno.Code(syscall.ECANCELED), Text: true, Format: true}},
	} {
		s := exportPlain(t, row.r)
		assert.Equal(t, row.want, cpeer.Drain(plainStream(s)))
		assert.Zero(t, plainStream(s).Release)
	}
}
