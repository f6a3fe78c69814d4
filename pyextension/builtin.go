//go:build cgo && unix

package pyextension

import (
	"runtime/debug"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	_ "github.com/arrowdevice/arrowdevice/memory/cudaalloc" // opens GPUs, once an argument or a call names one
)

// builtins are the functions that the objects of the Python package are made of.
var builtins map[string]func(*invocation) (any, error)

func init() {
	builtins = map[string]func(*invocation) (any, error){
		".functions":       describeFunctions,
		".library":         describeLibrary,
		".stats":           readStats,
		".trace":           trace,
		".live":            liveObjects,
		".exit":            exit,
		".export":          ofObject(export),
		".requested":       ofObject(checkRequested),
		".next":            ofReader(next),
		".read_all":        ofReader(readWhole),
		".column":          ofObject(column),
		".slice":           ofObject(slice),
		".names":           ofObject(names),
		".describe_schema": ofObject(describeSchema),
		".to_host":         ofObject(toHost),
		".to_device":       ofObject(toDevice),
		".synchronize":     ofObject(synchronize),
		".for_cudf":        ofObject(forCuDF),
		".from_cudf":       ofObject(fromCuDF),
		".dlpack":          ofArray(exportTensor),
		".dlpack_device":   ofArray(tensorDevice),
		".cuda_array":      ofArray(exportCUDAArray),
	}
}

// waiting are the built-in functions that may wait. The others run on the thread of the caller,
// whose per-thread default stream they may use.
var waiting = []string{".next", ".read_all", ".to_host", ".to_device", ".synchronize", ".for_cudf", ".from_cudf"}

// waits reports whether a call may wait.
func waits(name string, args []any) bool {
	if name == ".export" && len(args) == 2 {
		form, _ := args[1].(string)
		o, _ := args[0].(*source)
		onCPU := o != nil && o.object != nil && o.object.deviceID().Type == device.CPU // without an event to wait for
		return form == "array" && !onCPU
	}
	return slices.Contains(waiting, name)
}

func describeFunctions(*invocation) (any, error) {
	functions.mu.Lock()
	defer functions.mu.Unlock()
	if functions.failed != nil {
		return nil, &exception{kind: "ImportError", text: functions.failed.Error()}
	}
	all := make([]any, len(functions.all))
	for i, f := range functions.all {
		all[i] = f.describe()
	}
	return all, nil
}

func describeLibrary(*invocation) (any, error) {
	d := dict{{"module", ""}, {"version", ""}}
	if info, ok := debug.ReadBuildInfo(); ok {
		d[0].value, d[1].value = info.Main.Path, info.Main.Version
	}
	return d, nil
}

func readStats(*invocation) (any, error) {
	s := cdevice.ReadStats()
	return dict{
		{"exported_arrays", s.ExportedArrays}, {"exported_blocks", s.ExportedBlocks}, {"imported_arrays", s.ImportedArrays},
		{"exported_streams", s.ExportedStreams}, {"imported_streams", s.ImportedStreams},
		{"async_streams", s.AsyncStreams}, {"async_producers", s.AsyncProducers}, {"async_tasks", s.AsyncTasks},
		{"pinned_batches", s.PinnedBatches}, {"readers", s.Readers}, {"device_copies", s.DeviceCopies}, {"goroutines", s.Goroutines},
		{"objects", live.Load()}, {"calls", running.Load()},
	}, nil
}

func trace(in *invocation) (any, error) {
	on, err := argument[bool](in, 0)
	if err != nil {
		return nil, err
	}
	return cdevice.Trace(on), nil
}

func liveObjects(*invocation) (any, error) {
	var all []any
	for _, o := range cdevice.LiveObjects() {
		all = append(all, o.String())
	}
	return all, nil
}

// exit ends the contexts of all calls, and all objects, when the Python process ends: while the callbacks of what they hold can
// still run.
func exit(in *invocation) (any, error) {
	calls.mu.Lock()
	for _, c := range calls.byNumber {
		c.scope.end()
	}
	calls.mu.Unlock()
	for _, w := range handle.All(func(v handle.Releaser) bool { _, is := v.(*object); return is }) {
		release(w)
	}
	return nil, nil
}

// checkRequested compares the number of fields that a consumer asks for with that of an object. Types may
// differ: the consumer casts.
func checkRequested(in *invocation, o *object) (any, error) {
	requested, err := argument[int64](in, 1)
	if err != nil {
		return nil, err
	}
	var has int
	if o.kind == kindArray {
		nested, ok := o.array.DataType().(*arrow.StructType)
		if !ok {
			return nil, nil
		}
		has = nested.NumFields()
	} else {
		s, err := o.schemaOf()
		if err != nil {
			return nil, err
		}
		has = s.NumFields()
	}
	if n := int(requested); n != has {
		return nil, valueErrorf("requested_schema has %s, not %d", fielderr.HowMany(n, "field"), has)
	}
	return nil, nil
}

func names(in *invocation, o *object) (any, error) {
	s, err := o.schemaOf()
	if err != nil {
		return nil, err
	}
	all := make([]any, s.NumFields())
	for i, f := range s.Fields() {
		all[i] = f.Name
	}
	return all, nil
}

func describeSchema(in *invocation, o *object) (any, error) {
	if o.kind == kindArray {
		return o.array.DataType().String(), nil
	}
	s, err := o.schemaOf()
	if err != nil {
		return nil, err
	}
	return s.String(), nil
}
