//go:build linux

package flight_test

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

var started = regexp.MustCompile(`\ncreated by github.com/arrowdevice/arrowdevice/(flight|share|cdevice|internal/items)\.`)

// counts are the descriptors of the process, and its goroutines of this package and of package share, in a line.
func counts() string {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		files, err := os.ReadDir("/proc/self/fd")
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		n := len(started.FindAll(stacks, -1))
		if err != nil || n == 0 || time.Now().After(end) {
			return fmt.Sprintf("%d files, %d goroutines", len(files), n)
		}
	}
}

// Many streams with tickets leave no descriptor and no goroutine, in both processes.
func TestSharingLeavesNothing(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	mem := shareAllocator(t)
	opts := []any{flight.WithSharing(nil, mem)}
	round := func() {
		r, err := flight.DoGet(t.Context(), client, ticket(), as[flight.GetOption](opts)...)
		require.NoError(t, err)
		requireBatches(t, sharedNumbers(t), r)
		r = readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
		defer r.Release()
		require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, as[flight.PutOption](opts)...))
		abandoned := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
		defer abandoned.Release()
		answers, err := flight.DoExchange(t.Context(), client, descriptor(), abandoned, as[flight.ExchangeOption](opts)...)
		require.NoError(t, err)
		require.True(t, answers.Next(), answers.Err())
		answers.Release()
	}
	count := func() (files [2]int, said string) {
		peer.Write("count")
		var goroutines [2]int
		for i, text := range []string{counts(), peer.Read()} {
			_, err := fmt.Sscanf(text, "%d files, %d goroutines", &files[i], &goroutines[i])
			require.NoError(t, err)
		}
		return files, fmt.Sprintf("%d files, %d goroutines, here and there", files, goroutines)
	}
	round()
	isFree(t, peer)
	require.True(t, becomesFree(mem))
	before, said := count()
	for range 60 {
		round()
	}
	isFree(t, peer)
	require.True(t, becomesFree(mem))
	within.Eventually(t, "no more files than before, and no goroutine: "+said, func() bool {
		after, now := count()
		said = now
		return after[0] <= before[0] && after[1] <= before[1] && strings.Contains(now, "[0 0] goroutines")
	})
}
