//go:build cgo

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/bench/peers"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

const (
	arrowCPP  = "Arrow C++"
	nanoarrow = "nanoarrow"
	arrowRS   = "arrow-rs"
)

// libraries are the peers that are there.
var libraries []*peers.Library

// loadLibraries loads the peers that bench/peers/build.sh has built, or those of the folder that
// BENCH_PEERS names, and reports which are missing.
func loadLibraries(w io.Writer) {
	dir := os.Getenv("BENCH_PEERS")
	if dir == "" {
		dir = filepath.Join("build", "bench")
	}
	dir = must(filepath.Abs(dir))
	for _, l := range []struct{ name, file string }{
		{arrowCPP, "libarrowcpp.so"}, {nanoarrow, "libnanoarrow.so"}, {arrowRS, "libarrowrs.so"},
	} {
		library, err := peers.Load(l.name, filepath.Join(dir, l.file))
		if err != nil {
			fmt.Fprintf(w, "without %s, which bench/peers/build.sh builds: %v\n", l.name, err)
			continue
		}
		libraries = append(libraries, library)
	}
}

// missing reports whether a peer is a library that is not there.
func missing(peer string) bool {
	if slices.Contains(callPeers, peer) {
		return !slices.Contains(callPeersThere, peer)
	}
	if !slices.Contains([]string{arrowCPP, nanoarrow, arrowRS}, peer) {
		return false
	}
	return !slices.ContainsFunc(libraries, func(l *peers.Library) bool { return l.Name == peer })
}

// others are the peers in other languages that have the operation. What they export, a consumer releases.
func (s shape) others(name string, elsewhere bool) (all []peer) {
	for _, l := range libraries {
		if op := s.openOther(l, name, elsewhere); op != nil {
			all = append(all, *op)
		}
	}
	return all
}

func (s shape) openOther(l *peers.Library, name string, elsewhere bool) *peer {
	p, c := s.producer(), s.consumer(elsewhere)
	schema, batch := new(cdata.CArrowSchema), new(carray)
	s.export(batch, schema)
	op := must(l.Open(name, schema, &batch.CArrowDeviceArray, p, c))
	if op == nil {
		p.Close()
		c.Close()
		return nil
	}
	return &peer{
		name:  l.Name,
		do:    func(n int) { check(op.Run(n)) },
		close: inOrder([]func(){op.Close, p.Close, c.Close}),
	}
}

// consumer is a consumer in C that one side has.
func (s shape) consumer(elsewhere bool) *peers.Consumer {
	return must(peers.NewConsumer(held(s.columns, elsewhere), elsewhere))
}

// producer is a C producer of the batch.
func (s shape) producer() *peers.Producer {
	out := new(carray)
	s.export(out, nil)
	return must(peers.NewProducer(&out.CArrowDeviceArray))
}

// export exports the record batch of the shape for a peer, which holds it: not by s.batch, since an
// export of a batch beside others that are held allocates.
func (s shape) export(out *carray, schema *cdata.CArrowSchema) {
	batch := must(cdevice.WrapRecordBatch(s.rec, device.CPUDevice()))
	defer batch.Release()
	check(cdevice.ExportRecordBatch(batch, &out.CArrowDeviceArray, schema))
}

func cdataVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/apache/arrow-go/v18" {
			return dep.Version
		}
	}
	return "unknown"
}
