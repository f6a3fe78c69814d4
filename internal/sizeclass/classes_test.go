package sizeclass

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClassesCoverAllSizes(t *testing.T) {
	last := int64(0)
	for class := range classes {
		size := sizeOf(class)
		require.Greater(t, size, last)
		for _, want := range []int64{last + 1, size} {
			got, err := classOf(want)
			require.NoError(t, err)
			require.Equal(t, class, got, "size %d", want)
		}
		if size > largestSmall {
			require.LessOrEqual(t, float64(size), 1.26*float64(last), "waste of class %d", class)
		}
		last = size
	}
	for _, bad := range []int64{0, -1, math.MinInt64, math.MaxInt64, 1<<largestShift + 1} {
		_, err := classOf(bad)
		assert.Error(t, err)
	}
}

func TestSlabsAreInProportion(t *testing.T) {
	for _, c := range []struct{ block, most, want int64 }{
		{64, math.MaxInt64, 64 << 10},
		{4 << 10, math.MaxInt64, 64 << 10},
		{8 << 10, math.MaxInt64, 1 << 20},
		{64 << 10, math.MaxInt64, 1 << 20},
		{128 << 10, math.MaxInt64, 4 << 20},
		{1 << 20, math.MaxInt64, 4 << 20},
		{1 << 20, 2 << 20, 2 << 20},
		{1 << 20, 2<<20 - 1, 1 << 20},
		{64, 1000, 512},
		{64, 0, 64},
		{5 << 20, math.MaxInt64, 5 << 20},
		{5 << 20, 0, 5 << 20},
	} {
		class, err := classOf(c.block)
		require.NoError(t, err)
		assert.Equal(t, c.want, slabSize(class, c.most), "%+v", c)
	}
}
