package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// of is a table of paths with these instructions, each with one allocation of 144 bytes and one call into C.
func of(instructions map[string]float64) table {
	t := table{}
	for path, n := range instructions {
		t[path] = counts{n, 1, 144, 0, 1}
	}
	return t
}

func names(all []growth) (out []string) {
	for _, g := range all {
		out = append(out, g.String())
	}
	return out
}

func TestGrowthOfMoreThanThreePercentIsNamed(t *testing.T) {
	before := of(map[string]float64{"export": 10_000, "import": 10_000, "slice": 10_000, "gone": 10})
	after := of(map[string]float64{"export": 10_400, "import": 10_200, "slice": 5_000, "new": 1_000_000})
	assert.Equal(t, []string{"export: instructions grew from 10000 to 10400 (+4.0 %)"}, names(growths(before, after)))
}

// Each column counts for itself, and one call more is a growth where there was none.
func TestEveryColumnCounts(t *testing.T) {
	before := table{"export": counts{0: 1000}}
	for i, column := range columns {
		after := before["export"]
		after[i] = after[i]*2 + 20
		assert.Len(t, growths(before, table{"export": after}), 1, column)
		after[i] = before["export"][i] + slack[i]
		assert.Empty(t, growths(before, table{"export": after}), column)
	}
	one := before["export"]
	one[5] = 1
	assert.Equal(t, []string{"export: C to Go grew from 0 to 1"}, names(growths(before, table{"export": one})))
}

// A growth is accepted by a line that this change has given the path, if the line has the count.
func TestLinesAccept(t *testing.T) {
	before, after := of(map[string]float64{"export": 10_000}), of(map[string]float64{"export": 12_000})
	all := growths(before, after)
	require.Len(t, all, 1)
	for name, row := range map[string]struct {
		was, now float64
		left     int
	}{
		"the line has the count":                 {10_000, 12_000, 0},
		"it has that of another machine":         {10_100, 11_900, 0},
		"the line is as it was":                  {12_000, 12_000, 1},
		"the line has changed, and is too small": {10_000, 11_000, 1},
	} {
		left := accepted(all, of(map[string]float64{"export": row.was}), of(map[string]float64{"export": row.now}))
		assert.Len(t, left, row.left, name)
	}
	assert.Empty(t, accepted(all, table{}, after), "a new line")
	assert.Len(t, accepted(all, before, of(map[string]float64{"import": 12_000})), 1, "the line of another path")
}

func TestNewAndRemovedPathsAreNamed(t *testing.T) {
	missing, surplus := unlisted(of(map[string]float64{"export": 1, "new": 1}), of(map[string]float64{"export": 2, "gone": 1}))
	assert.Equal(t, []string{"new"}, missing)
	assert.Equal(t, []string{"gone"}, surplus)
}
