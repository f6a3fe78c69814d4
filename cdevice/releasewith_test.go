package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// However often the function of WithReleaser calls release, now or later, the producer's callback
// is called once.
func TestReleaseWithCallsTheProducerOnce(t *testing.T) {
	checkLeaks(t)
	var later []func()
	twice := cdevice.WithReleaser(func(release func()) {
		release()
		release()
		later = append(later, release)
	})
	for _, refused := range []bool{false, true} {
		f := foreignCase(t, "int64", asArray)
		if refused {
			f.device.Array.NBuffers = 1
		}
		before := cdevice.ReadStats()
		got, err := f.importWith(f.newSchema(t), twice)
		if refused {
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		} else {
			require.NoError(t, err)
			got.Release()
		}
		for _, release := range later {
			release()
		}
		assertReleased(t, f, 1)
		assert.Equal(t, before, cdevice.ReadStats())
		f.free()
		later = nil
	}
}

func TestReleaseWithEndsAStreamOnce(t *testing.T) {
	checkLeaks(t)
	var again func()
	twice := cdevice.WithReleaser(func(release func()) {
		release()
		again = release
	})
	s := newScript(t)
	before := cdevice.ReadStats()
	r, err := cdevice.ImportRecordReader(s.stream, twice)
	require.NoError(t, err)
	r.Release()
	assert.EqualValues(t, 1, s.releases.Load())
	after := cdevice.ReadStats()
	again()
	assert.EqualValues(t, 1, s.releases.Load())
	assert.Equal(t, after, cdevice.ReadStats())
	assert.Equal(t, before.ImportedStreams, after.ImportedStreams)
}
