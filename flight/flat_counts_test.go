//go:build !asan && !race

package flight_test

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
)

// A flat batch takes few allocations, far fewer than arrow-go's IPC needs for four columns.
func TestFlatBatchesAllocateLittle(t *testing.T) {
	rec := wide(t, 10)
	const n = 500
	recs := slices.Repeat([]arrow.RecordBatch{rec}, n)
	stream := new(captured)
	discard := &sink{ctx: background, last: 1 << 30}
	sent := testing.AllocsPerRun(3, func() {
		r := readerOf(t, device.CPUDevice(), rec.Schema(), recs...)
		defer r.Release()
		require.NoError(t, flight.Send(discard, r))
	}) / n
	r := readerOf(t, device.CPUDevice(), rec.Schema(), recs...)
	require.NoError(t, flight.Send(stream, r))
	r.Release()
	received := testing.AllocsPerRun(3, func() {
		r, _, err := flight.Receive(&tape{stream.sent, 1 << 20})
		require.NoError(t, err)
		defer r.Release()
		got := 0
		for range r.All() {
			got++
		}
		require.Equal(t, n, got)
	}) / n
	assert.Less(t, sent, 6.0, "allocations for each batch that is sent")
	assert.Less(t, received, 28.0, "allocations for each batch that is received")
}
