package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/bench/peers"
)

// kept are results that keep each promise by this factor, and with so many allocations more.
func kept(factor, allocs float64) (results []Result) {
	for _, p := range promises {
		results = append(results, Result{
			Operation: p.operation, Shape: p.shape, Columns: p.columns, Peer: p.peer,
			Ratio: factor * p.least, CPURatio: factor * p.least, Allocs: p.allocs + allocs,
		})
	}
	return results
}

// withCores has a machine of so many cores until the returned function is called.
func withCores(n int) (restore func()) {
	before := cores
	cores = n
	return func() { cores = before }
}

func TestPromises(t *testing.T) {
	defer withCores(4)()
	for name, row := range map[string]struct {
		results []Result
		then    []float64 // factors of the measurements that follow
		holds   bool
		asked   int // measurements, for the first promise
	}{
		"kept":                     {results: kept(1.01, 0), holds: true},
		"allocations of others":    {results: kept(1.01, 0.4), holds: true},
		"an allocation more":       {results: kept(1.01, 1)},
		"nothing measured":         {},
		"missed, then kept":        {results: kept(0.9, 0), then: []float64{0.8, 1.01}, holds: true, asked: 2},
		"missed each time":         {results: kept(0.9, 0), then: []float64{0.99, 0.99, 0.99, 0.99}, asked: attempts - 1},
		"kept, but allocates":      {results: kept(0.9, 1), then: []float64{2}, asked: 1},
		"not measured again":       {results: kept(0.9, 0), asked: attempts - 1},
		"the best is kept in mind": {results: kept(0.9, 0), then: []float64{1, 0.1}, holds: true, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			asked := map[promise]int{}
			again := func(p promise) []Result {
				asked[p]++
				if asked[p] > len(row.then) {
					return nil
				}
				return kept(row.then[asked[p]-1], 0)
			}
			var out bytes.Buffer
			assert.Equal(t, row.holds, promisesHold(&out, row.results, again), out.String())
			assert.Equal(t, row.asked, asked[promises[0]])
			assert.Equal(t, !row.holds, bytes.Contains(out.Bytes(), []byte("BROKEN")))
		})
	}
}

// A promise that needs more cores than the machine has is skipped, and the output says so.
func TestPromisesOfMoreCores(t *testing.T) {
	results := kept(1.01, 0)
	for i := range results {
		if promises[i].cores == 4 {
			results[i].Ratio = 0.5
		}
	}
	again := func(promise) []Result { return results }
	for n, holds := range map[int]bool{1: true, 3: true, 4: false, 64: false} {
		restore := withCores(n)
		var out bytes.Buffer
		assert.Equal(t, holds, promisesHold(&out, results, again), "%d cores", n)
		assert.Equal(t, holds, bytes.Contains(out.Bytes(), []byte("not checked: "+sideBySide(exportToC, 4))), out.String())
		restore()
	}
}

// A promise about a library that is not there is skipped, and the output says so; about one that is there, it is
// checked.
func TestPromisesOfMissingPeers(t *testing.T) {
	defer withCores(4)()
	results := kept(1.01, 0)
	for i := range results {
		if results[i].Peer == arrowCPP {
			results[i].Ratio = 0.1
		}
	}
	again := func(promise) []Result { return results }
	for there, holds := range map[bool]bool{false: true, true: false} {
		if there {
			libraries = []*peers.Library{{Name: arrowCPP}}
		}
		var out bytes.Buffer
		assert.Equal(t, holds, promisesHold(&out, results, again), "there: %t", there)
		assert.Equal(t, holds, bytes.Contains(out.Bytes(), []byte("against Arrow C++, which is not there")), out.String())
		libraries = nil
	}
}

// Each promise refers to an operation that is measured, even if it is measured again.
func TestPromisesAreMeasured(t *testing.T) {
	m := meter{round: time.Microsecond, rounds: 1}
	for _, p := range promises {
		if missing(p.peer) || isFlight(p.operation) || p.cores > cores {
			continue // TestPeersDoTheirOperations and TestFlightIsMeasured have them
		}
		_, found := p.find(run(m, p.filter()))
		assert.True(t, found, "%s, %s x %d against %s", p.operation, p.shape, p.columns, p.peer)
	}
}

var sink []byte

// What is allocated once is a small part of the count, of which other goroutines have none.
func TestAllocationsAreCountedOfManyOperations(t *testing.T) {
	asked := 0
	got := side{do: func(n int) {
		asked = n
		for range n {
			sink = make([]byte, 10_000)
		}
		sink = make([]byte, 10_000) // once
	}}.allocationsOf(counted)
	assert.Equal(t, counted, asked)
	assert.InDelta(t, 1, got, 0.1)
}

// More goroutines than cores are not measured.
func TestGoroutineCounts(t *testing.T) {
	for cores, want := range map[int][]int{1: nil, 2: {2}, 3: {2, 3}, 4: {2, 4}, 16: {2, 4, 16}} {
		assert.Equal(t, want, goroutineCounts(cores), "%d cores", cores)
	}
}
