package bandwidth

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// measured is a report of figures that do not change.
func measured(simulated bool) *Report {
	r := &Report{
		Arrowdevice: "v1.2.3", Simulated: simulated, CUDA: "12.4", TimePerNS: 200e6,
		Device: Device{Ordinal: 1, Name: "A GPU"},
	}
	rates := map[Direction]map[Method][]float64{
		ToDevice: {Plain: {2.1, 5.5, 11, 12.2}, Pinned: {5, 15, 24.9, 25}, Ours: {1, 6, 20, 23.5}, OursPinned: {0.004, 9, 24, 24.8}},
		ToHost:   {Plain: {1.9, 4, 8, 8.25}, Pinned: {5.2, 16, 26, 26.3}, Ours: {0.9, 3, 7, 7.5}, OursPinned: {1.5, 12, 25, 26.1}},
	}
	for i, size := range []int64{64 << 10, 1 << 20, 64 << 20, 1 << 30} {
		for _, d := range directions {
			for _, m := range methods {
				r.Points = append(r.Points, Point{Direction: d, Method: m, Bytes: size, Copies: 9, PerSecond: rates[d][m][i] * 1e9})
			}
		}
	}
	r.leaveOut(2<<30, "the GPU has not enough free memory")
	r.summarize()
	return r
}

func TestPrint(t *testing.T) {
	for name, look := range map[string]Look{
		"utf-8":  {Width: 80},
		"ascii":  {Width: 80, ASCII: true},
		"narrow": {Width: 33},
		"none":   {Width: 20},
		"colour": {Width: 80, Style: true},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			measured(name == "ascii").Print(&out, look)
			file := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o666))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), out.String(), "with -update the test writes %s", file)
			if look.ASCII {
				assert.False(t, strings.ContainsFunc(out.String(), func(r rune) bool { return r > 127 }))
			}
		})
	}
}

// The height of a bar is its value, to an eighth of a cell.
func TestBarsAreAsHighAsTheirValues(t *testing.T) {
	heights := map[rune]int{}
	for i, cell := range eighths {
		heights[[]rune(cell)[0]] = i
	}
	for _, v := range []float64{0, 0.001, 1, 2.5, 3.33, 7.77, 9.99, 10} {
		p := plot{labels: []string{"x", "y"}, values: [][]float64{{v}, {10}}}
		sum := 0
		for _, line := range p.draw(80)[:plotHeight] {
			if cells := []rune(line); len(cells) > axis {
				sum += heights[cells[axis]]
			}
		}
		want := v / 10 * plotHeight * 8
		if v > 0 && want < 1 {
			want = 1
		}
		assert.InDelta(t, want, sum, 0.51, "%v", v)
	}
}

func TestTopIsARoundNumberAbove(t *testing.T) {
	for largest, want := range map[float64]float64{0: 1, 1: 1, 13.5: 15, 26.3: 30, 0.0123: 0.015, 99: 100, 55: 60, 431: 500} {
		assert.InEpsilon(t, want, plot{values: [][]float64{{0, largest}}}.top(), 1e-9, largest)
	}
}

func TestBar(t *testing.T) {
	b := NewBar(nil, 60, false)
	assert.Equal(t, "━━━━━━━━━━━━────────────  50 %  64 KiB", b.line(3, 6, "64 KiB"))
	assert.Equal(t, "────────────────────────   0 %  x", b.line(0, 6, "x"))
	assert.Equal(t, 19, utf8.RuneCountInString(NewBar(nil, 20, true).line(1, 6, "long")))
	var out strings.Builder
	b = NewBar(&out, 60, true)
	b.Clear()
	assert.Empty(t, out.String(), "nothing was drawn")
	b.Show(1, 2, "x")
	b.Show(2, 2, "too soon")
	b.Clear()
	assert.Equal(t, "\r############............  50 %  x\x1b[K\r\x1b[K", out.String())
}
