package doctor

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

//go:embed peers.py
var peersScript string

// peers are the libraries that are looked for.
var peers = []string{
	"pyarrow", "nanoarrow", "polars", "duckdb", "pandas", "numpy", "numba", "cuda.core", "cupy", "torch", "jax", "cudf", "pylibcudf", "rmm",
}

// examinePython imports each peer in a process of its own, some at a time.
func examinePython(ctx context.Context, o Options) Python {
	command, timeout := o.Python, o.Timeout
	p := Python{Command: command}
	var self struct{ Path, Version string }
	end, err := ask(ctx, command, "", timeout, func(text json.RawMessage) { _ = json.Unmarshal(text, &self) })
	switch p.Path, p.Version = self.Path, self.Version; {
	case err != nil:
		p.Error = err.Error()
		return p
	case end.timedOut:
		p.Error = fmt.Sprintf("%s did not start within %s", command, timeout)
		return p
	case p.Version == "":
		p.Error = fmt.Sprintf("%s is no Python 3.8 or later: %s", command, cmp.Or(lastLine(end.died+"\n"+end.stderr), "it ended and said nothing"))
		return p
	}
	p.Peers = make([]Peer, len(peers))
	turns := make(chan struct{}, max(2, min(4, runtime.NumCPU())))
	var all sync.WaitGroup
	for i, name := range peers {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			o.begin("import " + name)
			p.Peers[i] = examinePeer(ctx, command, name, timeout)
		})
	}
	all.Wait()
	return p
}

func examinePeer(ctx context.Context, command, name string, timeout time.Duration) Peer {
	peer := Peer{Name: name}
	end, err := ask(ctx, command, name, timeout, func(text json.RawMessage) { _ = json.Unmarshal(text, &peer) })
	switch {
	case err != nil:
		peer.State, peer.Error = "error", err.Error()
	case end.timedOut:
		peer.State, peer.Error = "timed out", fmt.Sprintf("its import did not end within %s", timeout)
	case peer.State == "":
		peer.State, peer.Error = "crashed", end.died
		if peer.Error == "" {
			peer.Error = "its import ended the process"
		}
		if end.stderr != "" {
			peer.Error += ": " + lastLine(end.stderr)
		}
	}
	return peer
}

// ask runs peers.py, and calls result with its result.
func ask(ctx context.Context, command, name string, timeout time.Duration, result func(json.RawMessage)) (outcome, error) {
	return follow(ctx, exec.Command(command, "-c", peersScript, name), timeout, func(line []byte) {
		var m struct{ Result json.RawMessage }
		if json.Unmarshal(line, &m) == nil && m.Result != nil {
			result(m.Result)
		}
	})
}
