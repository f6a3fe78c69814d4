package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

func TestMain(m *testing.M) { os.Exit(goroutineleak.Run(m)) }

// section is a folder of results on a simulated machine.
type section struct {
	*testing.T
	folder string
}

func onSimulator(t *testing.T) section {
	sim := cudasim.Load(t, cudasim.Options{NoPoison: true, NoRace: true})
	sim.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority", "cuEventCreate")
	t.Setenv(cuda.PathVariable, sim.Path())
	return section{t, t.TempDir()}
}

func (s section) run(ctx context.Context) (output string, status int) {
	s.Helper()
	var out strings.Builder
	status, err := run(ctx, func(name string) string {
		return map[string]string{"KIT_OUT": s.folder, "KIT_SIMULATED": "1", "KIT_SECONDS": "120"}[name]
	}, &out)
	require.NoError(s, err)
	return out.String(), status
}

func (s section) file() string { return filepath.Join(s.folder, "rows.tsv") }

func (s section) lines() []string {
	text, err := os.ReadFile(s.file())
	require.NoError(s, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// A run that is begun again measures the rows that are missing, of which one was being written, and no others.
func TestRunGoesOn(t *testing.T) {
	s := onSimulator(t)
	output, status := s.run(t.Context())
	assert.Zero(t, status)
	assert.NotContains(t, output, "FAIL")
	assert.Contains(t, output, "ok rows: all ")
	lines := s.lines()
	assert.Equal(t, len(lines), strings.Count("\n"+output, "\nrow "))

	name, _, _ := strings.Cut(lines[0], "\t")
	changed := append([]string{name + "\t4.000\t5.000\t1.250"}, lines[1:len(lines)-2]...)
	cut := lines[len(lines)-2][:len(lines[len(lines)-2])-1]
	require.NoError(t, os.WriteFile(s.file(), []byte(strings.Join(changed, "\n")+"\n"+cut), 0o666))
	output, status = s.run(t.Context())
	assert.Zero(t, status)
	assert.Contains(t, output, "row "+name+": 4.0 µs, the driver's 5.0 µs, ratio 1.25\n")
	again := s.lines()
	require.Len(t, again, len(lines))
	assert.Equal(t, changed, again[:len(changed)], "these are not measured again")
	for i := len(changed); i < len(lines); i++ {
		measured, _, _ := strings.Cut(lines[i], "\t")
		assert.True(t, strings.HasPrefix(again[i], measured+"\t"))
	}
}

// The end of the time is said, and leaves the rows that are there.
func TestRunEndsInTime(t *testing.T) {
	s := onSimulator(t)
	require.NoError(t, os.WriteFile(s.file(), []byte("pinned memory to the device, 4 MiB, ours\t4.000\t5.000\t1.250\n"), 0o666))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	output, status := s.run(ctx)
	assert.Equal(t, statusLeft, status)
	assert.Contains(t, output, "row pinned memory to the device, 4 MiB, ours: 4.0 µs")
	assert.Contains(t, output, "missing: pinned memory to the host, 4 MiB, ours\n")
	assert.NotContains(t, output, "ok rows")
	assert.Len(t, s.lines(), 1)
}

// On a GPU the ratios that are promised are judged, and no others; a row that is missing is named.
func TestJudge(t *testing.T) {
	all := []*comparison{
		{name: "fast", ours: []string{oursNow, "other"}, least: map[string]float64{oursNow: 0.9}},
		{name: "slow", ours: []string{oursNow}, least: map[string]float64{oursNow: 0.9}},
		{name: "odd", ours: []string{oursNow}},
	}
	var out strings.Builder
	r, err := openRows(filepath.Join(t.TempDir(), "new", "rows.tsv"), &out)
	require.NoError(t, err)
	defer r.close()
	require.NoError(t, r.add("fast, ours", 10, 9))
	require.NoError(t, r.add("fast, other", 10, 1))
	require.NoError(t, r.add("slow, ours", 10, 8.9))
	out.Reset()
	r.judge(all, false)
	assert.Equal(t, "ok fast, ours: ratio 0.90, goal 0.90\nFAIL slow, ours: ratio 0.89, goal 0.90\nmissing: odd, ours\n", out.String())
	out.Reset()
	r.done = []string{"fast, ours", "slow, ours"}
	assert.Equal(t, 1, r.judge(all, false))
	assert.Equal(t, "missing: odd, ours\n", out.String(), "a row is judged once")
	out.Reset()
	r.skip(all[2], context.Canceled)
	r.judge(all, true)
	assert.Equal(t, "skip odd: context canceled\nok rows: all 4 are there\n", out.String())
}

// The comparisons of a GPU have names of their own, and those of a simulated one are of the same kinds.
func TestEverything(t *testing.T) {
	names := map[string]bool{}
	for _, c := range everything(false) {
		for _, of := range c.ours {
			assert.False(t, names[c.row(of)], c.row(of))
			names[c.row(of)] = true
		}
	}
	for _, name := range []string{
		"pinned memory to the host, 64 MiB, ours", "plain memory to the device, 256 MiB, staged by 8", "plain memory to the host, fresh, 100 columns of 64 KiB, ours",
		"device memory beside cuMemAllocAsync, 64 MiB, ours", "plain memory to the host, 1 MiB, registered for the copy",
	} {
		assert.Contains(t, names, name)
	}
}
