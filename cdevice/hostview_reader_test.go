package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func TestHostReaderIsAnArrowGoReader(t *testing.T) {
	checkLeaks(t)
	s := newScript(t, numbered(t, 3)...)
	r := s.reader(t)
	h := r.HostReader(background, nil)
	assert.Same(t, r.Schema(), h.Schema())
	h.Retain()
	h.Release()
	var kept []arrow.RecordBatch
	for h.Next() {
		//lint:ignore SA1019 it is deprecated, and still of the interface
		assert.Equal(t, h.RecordBatch(), h.Record())
		h.RecordBatch().Retain()
		kept = append(kept, h.RecordBatch())
	}
	require.NoError(t, h.Err())
	assert.False(t, h.Next())
	assert.Nil(t, h.RecordBatch())
	h.Release()
	for i, rec := range kept {
		assert.Equal(t, i, numberIn(rec))
		rec.Release()
	}
}

// It holds the stream on its own, and lets it go early.
func TestHostReaderHoldsTheStream(t *testing.T) {
	checkLeaks(t)
	s := newScript(t, numbered(t, 3)...)
	r, err := cdevice.ImportRecordReader(s.stream)
	require.NoError(t, err)
	h := r.HostReader(background, nil)
	r.Release()
	assert.Zero(t, s.releases.Load())
	require.True(t, h.Next())
	assert.Equal(t, 0, numberIn(h.RecordBatch()))
	h.Release()
	assert.EqualValues(t, 1, s.releases.Load())

	late := r.HostReader(background, nil)
	assert.False(t, late.Next())
	assert.ErrorIs(t, late.Err(), cdevice.ErrReleased)
	late.Release()
}

// At the end it gives the stream back, although it lives on itself.
func TestHostReaderLetsTheStreamGoAtItsEnd(t *testing.T) {
	checkLeaks(t)
	s := newScript(t, numbered(t, 1)...)
	r, err := cdevice.ImportRecordReader(s.stream)
	require.NoError(t, err)
	h := r.HostReader(background, nil)
	r.Release()
	require.True(t, h.Next())
	require.False(t, h.Next())
	assert.EqualValues(t, 1, s.releases.Load())
	h.Release()
}

func TestErrorsOfAHostReader(t *testing.T) {
	checkLeaks(t)
	r := newScript(t, numbered(t, 2)...).failing(1, 5, "disk on fire").reader(t)
	h := r.HostReader(background, nil)
	defer h.Release()
	require.True(t, h.Next())
	assert.False(t, h.Next())
	assert.ErrorContains(t, h.Err(), "disk on fire")
	assert.False(t, h.Next())
	assert.ErrorContains(t, h.Err(), "disk on fire")

	ctx, cancel := context.WithCancel(background)
	cancel()
	canceled := newScript(t, numbered(t, 2)...).reader(t).HostReader(ctx, nil)
	defer canceled.Release()
	assert.False(t, canceled.Next())
	assert.ErrorIs(t, canceled.Err(), context.Canceled)
}

// A batch whose release panics, in a program's function, is dropped nevertheless, and so is the reader.
func TestHostReaderOfReleasesThatPanic(t *testing.T) {
	checkLeaks(t)
	none := arrow.NewSchema(nil, nil)
	r, err := readerFunc(none, device.CPU, func() (*cdevice.RecordBatch, error) {
		return ownedBatch(t, func() { panic("in Release") }), nil
	}, nil)
	require.NoError(t, err)
	h := r.HostReader(background, nil)
	r.Release()
	require.True(t, h.Next())
	assert.PanicsWithValue(t, "in Release", func() { h.Next() })
	require.True(t, h.Next())
	assert.PanicsWithValue(t, "in Release", h.Release)
}
