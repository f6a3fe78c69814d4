package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Copies out of a batch that is not ready wait for it, each on its own: other copies, and their release, do not.
func TestGPUBatchThatIsNotReadyHoldsUpNoOtherCopies(t *testing.T) {
	checkLeaks(t)
	cudatest.WithAndWithoutPools(t, cudasim.Options{}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		want := wantText(t)
		late, open := notReady(t, m, gpu)
		part, err := late.Slice(0, 4) // which has offsets to read first
		require.NoError(t, err)
		late.Release()
		waiting := make(chan error, 2)
		var host arrow.Array
		var there *cdevice.Array
		go func() {
			var err error
			host, err = part.CopyToHost(background, nil)
			waiting <- err
		}()
		go func() {
			var err error
			there, err = part.CopyTo(background, gpu)
			waiting <- err
		}()
		for range 5 {
			within.Seconds(t, "copies of another batch", func() error {
				another, err := copyArray(background, want, gpu)
				if err != nil {
					return err
				}
				defer another.Release()
				sameOnHost(t, want, another)
				second, err := another.CopyTo(background, gpu)
				if err != nil {
					return err
				}
				defer second.Release()
				return second.Synchronize(background)
			})
		}
		big := numbers(t, 8*mib)
		for range 10 {
			within.Seconds(t, "a copy that is freed", func() error { copiedTo(t, big, gpu).Release(); return nil })
		}
		within.Eventually(t, "the memory of other copies has ended", func() bool { return gpu.ReadStats().Device.Live < mib })
		assert.Empty(t, waiting, "the copies of the batch that is not ready")
		open()
		for range 2 {
			within.Seconds(t, "a copy of the batch that was not ready", func() error { return <-waiting })
		}
		assert.True(t, array.Equal(want, host))
		host.Release()
		sameOnHost(t, want, there)
		there.Release()
		part.Release()
		require.NoError(t, gpu.Flush(background))
	})
}
