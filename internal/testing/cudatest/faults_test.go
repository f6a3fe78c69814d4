package cudatest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSpreadHasTheEndsAndNoNumberTwice(t *testing.T) {
	for n := range 200 {
		assert.Len(t, spread(n, 0), n)
		for limit := 1; limit < 30; limit++ {
			numbers := spread(n, limit)
			assert.Len(t, numbers, min(n, limit))
			assert.True(t, slices.IsSorted(numbers))
			assert.Len(t, slices.Compact(slices.Clone(numbers)), len(numbers), "%d of %d", limit, n)
			if n > 0 {
				assert.Equal(t, 1, numbers[0])
			}
			if n > 0 && limit > 1 {
				assert.Equal(t, n, numbers[len(numbers)-1])
			}
		}
	}
}

func TestFaultsHaveEveryFunction(t *testing.T) {
	calls := map[string]int{"often": 4000, "once": 1, "twice": 2}
	counts := map[string]int{}
	for _, f := range Faults(calls) {
		counts[f.Function]++
	}
	assert.Equal(t, 1, counts["once"])
	assert.Equal(t, 2, counts["twice"])
	assert.Greater(t, counts["often"], 2)
	t.Setenv(AllFaults, "all")
	assert.Len(t, Faults(calls), 4003)
}
