package cdevice_test

import (
	"errors"
	"io"
	"iter"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// inTurn yields readers of one batch each, n of them, and then an error, and releases each reader after its turn.
func inTurn(t *testing.T, n int, err error, opened *int) iter.Seq2[*cdevice.RecordReader, error] {
	return func(yield func(*cdevice.RecordReader, error) bool) {
		for i := range n {
			*opened++
			r := counting(t, i, i)
			more := yield(r, nil)
			r.Release()
			if !more {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func TestConcatRecordReaders(t *testing.T) {
	checkLeaks(t)
	for name, fails := range map[string]error{"all": nil, "the iterator fails": errSource} {
		opened := 0
		r, err := cdevice.ConcatRecordReaders(numberedSchema, device.CPU, inTurn(t, 3, fails, &opened))
		require.NoError(t, err, name)
		assert.Zero(t, opened, "no reader is opened before its turn")
		require.True(t, r.Next())
		assert.Equal(t, 1, opened)
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, []int{1, 2}, numbers, name)
		assert.ErrorIs(t, err, fails, name)
		assert.Equal(t, 3, opened)
		r.Release()
	}
}

func TestConcatRecordReadersReleasedBeforeTheEnd(t *testing.T) {
	checkLeaks(t)
	opened := 0
	r, err := cdevice.ConcatRecordReaders(numberedSchema, device.CPU, inTurn(t, 3, nil, &opened))
	require.NoError(t, err)
	require.True(t, r.Next())
	r.Release()
	assert.Equal(t, 1, opened)
}

func TestConcatRecordReadersThatDoNotFit(t *testing.T) {
	checkLeaks(t)
	for want, second := range map[string]func() *cdevice.RecordReader{
		"cdevice: read: readers[1].RecordBatch has 2 columns, and the schema of the stream 1 field: invalid": func() *cdevice.RecordReader {
			r, err := cdevice.NewRecordReader(twoColumns(t).Schema(), device.CPU, yielding(nil))
			require.NoError(t, err)
			return r
		},
		"cdevice: readers[1]: " + errSource.Error(): func() *cdevice.RecordReader {
			return asked(t, errSource)
		},
		"cdevice: read: readers[1] = nil, want a reader or an error: invalid": func() *cdevice.RecordReader { return nil },
		"cdevice: read: readers[1].device_type = cuda, want cpu, the device type of the stream; MapTo and CopyTo copy batches: invalid": func() *cdevice.RecordReader {
			r, err := cdevice.NewRecordReader(numberedSchema, device.CUDA, yielding(nil))
			require.NoError(t, err)
			return r
		},
		"cdevice: readers[1]: no such table": func() *cdevice.RecordReader {
			r, err := cdevice.NewFailedRecordReader(device.CPU, errors.New("no such table"))
			require.NoError(t, err)
			return r
		},
	} {
		r, err := cdevice.ConcatRecordReaders(numberedSchema, device.CPU, func(yield func(*cdevice.RecordReader, error) bool) {
			for _, make := range []func() *cdevice.RecordReader{func() *cdevice.RecordReader { return counting(t, 0, 0) }, second} {
				r := make()
				more := yield(r, nil)
				if r != nil {
					r.Release()
				}
				if !more {
					return
				}
			}
		})
		require.NoError(t, err)
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, []int{0}, numbers, want)
		assert.EqualError(t, err, want)
		r.Release()
	}
	_, err := cdevice.ConcatRecordReaders(numberedSchema, 0, func(func(*cdevice.RecordReader, error) bool) {})
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}

func TestConcatRecordReadersWithAReaderBesideEOF(t *testing.T) {
	checkLeaks(t)
	r, err := cdevice.ConcatRecordReaders(numberedSchema, device.CPU, func(yield func(*cdevice.RecordReader, error) bool) {
		last := counting(t, 0, 2)
		yield(last, io.EOF)
		last.Release()
	})
	require.NoError(t, err)
	assert.False(t, r.Next())
	assert.EqualError(t, r.Err(), "cdevice: read: the source returned an item with io.EOF: invalid")
	r.Release()
}
