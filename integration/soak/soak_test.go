package soak

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// workers is the number of goroutines on each machine.
const workers = 200

// machine is a simulated machine to soak.
type machine struct {
	name    string
	options cudasim.Options
	// poor machines run out of memory, which is not a failure.
	poor bool
}

const delay = 100 * time.Microsecond

func machines() []machine {
	return []machine{
		{"random", cudasim.Options{Delay: delay, Random: true, PageableAsync: true}, false},
		{"without pools", cudasim.Options{Delay: delay, Random: true, NoPools: true, NoPeer: true}, false},
		{"lazy", cudasim.Options{Lazy: true, PageableAsync: true}, false},
		{"little memory", cudasim.Options{Delay: delay, Random: true, Memory: 12 << 20, HostMemory: 40 << 20}, true},
		{"little memory, without pools", cudasim.Options{
			Delay: delay, Random: true, NoPools: true, Memory: 12 << 20, HostMemory: 40 << 20}, true},
	}
}

// plan has the duration of a run, and its requirements.
type plan struct {
	each   time.Duration // machine
	seed   uint64
	bound  time.Duration // on the time from the end of a context to the return of a call
	steady bool          // memory is measured: neither a short run nor an instrumented one
	all    []scenario
}

func newPlan(t *testing.T) plan {
	each, steady := 3*time.Second, true
	if testing.Short() { // instrumented runs, which are slow
		each, steady = time.Second, false
	}
	all := setting(t, Time, each*time.Duration(len(machines())), time.ParseDuration)
	parseSeed := func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }
	p := plan{
		each: all / time.Duration(len(machines())), steady: steady,
		seed:  setting(t, Seed, uint64(time.Now().UnixNano()), parseSeed),
		bound: setting(t, Bound, 2*time.Second, time.ParseDuration),
	}
	only := setting(t, Only, regexp.MustCompile(""), regexp.Compile)
	for _, s := range scenarios() {
		if only.MatchString(s.name) {
			p.all = append(p.all, s)
		}
	}
	require.NotEmpty(t, p.all, "%s=%v leaves nothing", Only, only)
	return p
}

// setting returns the value of an environment variable, or a default where it is not set.
func setting[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	require.NoError(t, err, name)
	return value
}

func TestSoak(t *testing.T) {
	cudatest.WithoutDefault()
	quietLog(t)
	p := newPlan(t)
	t.Logf("%s=%d: each of %d machines takes %v", Seed, p.seed, len(machines()), p.each)
	for i, m := range machines() {
		t.Run(m.name, func(t *testing.T) {
			m.options.Devices = 2
			m.options.Seed = p.seed%1000 + uint64(i) + 1 // the schedule is of the run's seed too
			newCrew(t, m, p).run()
		})
	}
}

// String returns the setting of the environment that repeats the run, as far as a seed can.
func (p plan) String() string { return fmt.Sprintf("%s=%d", Seed, p.seed) }
