package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
)

// Each shape, given by the C producer again and again, is the batch that it was made of.
func TestProducerGivesTheBatch(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, sub := range subjects() {
		sub.columns = min(sub.columns, 3)
		s := newShape(sub)
		p := s.producer()
		for range 3 {
			in := new(carray)
			p.Give(&in.CArrowDeviceArray)
			rec, err := cdata.ImportCRecordBatchWithSchema(plain(&in.CArrowDeviceArray), s.rec.Schema())
			require.NoError(t, err, sub.name)
			assert.True(t, array.RecordEqual(s.rec, rec), sub.name)
			rec.Release()
			p.Give(&in.CArrowDeviceArray)
			batch, err := cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, s.rec.Schema())
			require.NoError(t, err, sub.name)
			view, err := batch.HostView(t.Context())
			require.NoError(t, err, sub.name)
			assert.True(t, array.RecordEqual(s.rec, view), sub.name)
			view.Release()
			batch.Release()
		}
		for _, elsewhere := range []bool{false, true} {
			c := s.consumer(elsewhere)
			require.NoError(t, p.Floor(c, 3))
			require.NoError(t, p.FloorStream(c, 3))
			c.Close()
		}
		p.Close()
		s.release()
	}
}

// Each peer does each of its operations with each shape without an error, and releases what it took.
func TestPeersDoTheirOperations(t *testing.T) {
	t.Setenv("BENCH_PEERS", filepath.Join("..", "build", "bench"))
	loadLibraries(os.Stderr)
	defer func() { libraries = nil }()
	if len(libraries) == 0 {
		t.Skip("bench/peers/build.sh has built none")
	}
	cdevicetest.CheckLeaks(t)
	for _, sub := range subjects() {
		names := []string{liveName}
		for _, operation := range inTables {
			if operation[0] != importValues || sub.name == "int64" { // the only type that is summed
				names = append(names, operation[0])
			}
		}
		sub.columns = min(sub.columns, 3)
		s := newShape(sub)
		for _, l := range libraries {
			done := 0
			for _, name := range names {
				for _, elsewhere := range []bool{false, true} {
					if p := s.openOther(l, name, elsewhere); p != nil {
						p.do(3)
						p.end()
						done++
					}
				}
			}
			assert.GreaterOrEqual(t, done, 2*9, "%s, %s", l.Name, sub.name)
		}
		s.release()
	}
}
