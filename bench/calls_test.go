package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each side that is there makes each of its calls, with the right result.
func TestCallsFromPython(t *testing.T) {
	t.Chdir("..")
	if _, err := os.Stat(filepath.Join(callsFolder, "libcalls.so")); err != nil {
		t.Skip("bench/python/build.sh has not built it")
	}
	var r report
	r.Machine.Peers = map[string]string{}
	r.addCalls(measureCalls(os.Stderr, meter{round: time.Microsecond, rounds: 1}))
	defer func() { callPeersThere = nil }()
	assert.NotEmpty(t, r.Machine.Python)
	assert.False(t, missing(ctypesCgo), "Go builds it")
	for _, of := range inCalls {
		of := of.operation
		for _, peer := range callPeers {
			export := of == callBatch || of == callStream
			if missing(peer) || of == callOwn && peer != pyO3 || peer == pyArrowExport && !export {
				continue
			}
			row, found := r.call(of, peer)
			require.True(t, found, "%s by %s", of, peer)
			assert.Positive(t, row.NS)
			assert.InEpsilon(t, row.PeerNS/row.NS, row.Ratio, 0.01)
		}
	}
	for _, name := range onThreads {
		row, found := r.call(callsName+": "+name+", 8 threads", oneThreadOnly)
		require.True(t, found, name)
		assert.Positive(t, row.Ratio)
	}

	once := measureCalls(os.Stderr, meter{round: time.Microsecond, rounds: 1}, callAdd)
	require.NotEmpty(t, once.Rows)
	for _, row := range once.Rows {
		assert.Equal(t, callAdd, row.Operation, "a promise is measured again alone")
	}
}

func TestTablesOfCalls(t *testing.T) {
	r := report{Results: []Result{
		{Operation: callEmpty, NS: 1500, Peer: cExtension, PeerNS: 20},
		{Operation: callOwn, NS: 3000, Peer: ourName, PeerNS: 3000},
		{Operation: callImport, NS: 2e6, Peer: pyO3, PeerNS: 1e6},
		{Operation: callsName + ": empty(), 4 threads", Peer: oneThreadOnly, Ratio: 3.3},
		{Operation: callsName + ": empty(), 4 threads", Peer: pyO3, PeerNS: 10},
		{Operation: callsName + ": empty(), 4 threads", Peer: pyO3 + oneThread, PeerNS: 20},
	}}
	calls := callsTable(r)
	assert.Contains(t, calls, "| empty() | 1.5 µs | 2.0 µs | 20 ns |  |  |  |  |\n")
	assert.Contains(t, calls, "| rows(own batch) | 3.0 µs | 4.0 µs |  |  |  |  |  |\n", "nobody else was there")
	assert.Contains(t, calls, "| import | 2.0 ms |  |  | 1.0 ms |  |  |  |\n", "there is no limit of it")
	assert.Contains(t, threadsTable(r), "| empty() | 4 | 3.3 | 2.0 |\n")
}

// Without its library the section is left out, with a line that says so.
func TestCallsThatAreNotThere(t *testing.T) {
	t.Chdir(t.TempDir())
	var said bytes.Buffer
	assert.Empty(t, measureCalls(&said, meter{}).Rows)
	assert.Contains(t, said.String(), "without calls from Python")
	for _, peer := range callPeers {
		assert.True(t, missing(peer), peer)
	}
}
