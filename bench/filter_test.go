package main

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilter(t *testing.T) {
	for _, row := range []struct {
		args   []string
		yes    []string // of batches of 100 int64 columns
		no     []string
		others bool // what has no shape
	}{
		{nil, []string{exportRelease, importRelease}, nil, true},
		{[]string{"-only", "^import"}, []string{importRelease, importView}, []string{exportRelease, wrapStream}, false},
		{[]string{"-columns", "1, 100"}, []string{exportRelease}, nil, false},
		{[]string{"-columns", "1"}, nil, []string{exportRelease}, false},
		{[]string{"-shape", "utf8"}, nil, []string{exportRelease}, false},
	} {
		var f filter
		set := flag.NewFlagSet("", flag.ContinueOnError)
		f.flags(set)
		require.NoError(t, set.Parse(row.args))
		for _, name := range row.yes {
			assert.True(t, f.selects(name, "int64", 100), "%v: %s", row.args, name)
		}
		for _, name := range row.no {
			assert.False(t, f.selects(name, "int64", 100), "%v: %s", row.args, name)
		}
		assert.Equal(t, row.others, f.alone(liveName), row.args)
	}
}

// A peer that is not selected is closed, and not measured.
func TestPeersAreSelected(t *testing.T) {
	f := filter{peer: exactly("cdata")}
	closed := 0
	end := func() { closed++ }
	kept := f.peers([]peer{{name: "cdata", close: end}, {name: arrowCPP, close: end}})
	assert.Len(t, kept, 1)
	assert.Equal(t, "cdata", kept[0].name)
	assert.Equal(t, 1, closed)
}
