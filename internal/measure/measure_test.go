package measure

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

func TestMain(m *testing.M) { os.Exit(goroutineleak.Run(m)) }

// Memory of the allocator for copies to the host is not cleared, and is there again and again.
func TestReusedMemory(t *testing.T) {
	r := &Used{bytes: []byte{1, 2, 3, 4}}
	for range 2 {
		b := r.AllocateUninitialized(3)
		assert.Equal(t, []byte{1, 2, 3}, b)
		r.Free(b)
	}
}

// The calls take turns, those that fill caches are not measured, and done is not part of what was measured.
func TestTurns(t *testing.T) {
	var order []int
	slow := func(i int) Call {
		return func() (func(), error) {
			order = append(order, i)
			return func() { time.Sleep(20 * time.Millisecond) }, nil
		}
	}
	took, err := Turns{Each: 1}.Measure(t.Context(), []Call{slow(0), slow(1)})
	assert.NoError(t, err)
	assert.Equal(t, []int{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}, order)
	for _, samples := range took {
		assert.Len(t, samples, 2*Rounds)
		assert.Less(t, Median(samples), 10*time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Turns{Each: time.Hour}.Measure(ctx, []Call{func() (func(), error) { return cancel, nil }})
	assert.ErrorIs(t, err, context.Canceled)
}
