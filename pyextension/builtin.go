//go:build cgo && unix

package pyextension

import (
	"runtime/debug"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	_ "github.com/arrowdevice/arrowdevice/memory/cudaalloc" // opens GPUs, once an argument or a call names one
)

// builtin is a function that the objects of the Python package are made of.
type builtin struct {
	name string
	f    func(*invocation) (any, error)
	wait bool // it may wait
}

// Those that never wait run on the thread of the caller, whose per-thread default stream they may use.
var builtins = map[string]*builtin{}

func init() {
	for _, f := range []*builtin{
		{".functions", describeFunctions, false},
		{".library", describeLibrary, false},
		{".stats", readStats, false},
		{".trace", trace, false},
		{".live", liveObjects, false},
		{".exit", exit, false},
		{".export", ofObject(export), true},
		{".requested", ofObject(checkRequested), false},
		{".next", ofReader(next), true},
		{".read_all", ofReader(readWhole), true},
		{".column", ofObject(column), false},
		{".slice", ofObject(slice), false},
		{".names", ofObject(names), false},
		{".describe_schema", ofObject(describeSchema), false},
		{".to_host", ofObject(toHost), true},
		{".to_device", ofObject(toDevice), true},
		{".synchronize", ofObject(synchronize), true},
		{".for_cudf", ofObject(forCuDF), true},
		{".from_cudf", ofObject(fromCuDF), true},
		{".dlpack", ofArray(exportTensor), false},
		{".dlpack_device", ofArray(tensorDevice), false},
		{".cuda_array", ofArray(exportCUDAArray), false},
	} {
		builtins[f.name] = f
	}
}

func (f *builtin) run(sc *scope, r *results, args []any) (any, error) {
	return f.f(&invocation{sc, r, args})
}

func (f *builtin) called() string { return f.name }

func (f *builtin) apart() bool { return false }

// waits is whether a call waits: an export does so for an event, to a form that has none.
func (f *builtin) waits(args []any) bool {
	if f.name == ".export" && len(args) == 2 {
		form, _ := args[1].(string)
		o, _ := args[0].(*source)
		return form == "array" && (o == nil || o.object == nil || o.object.deviceID().Type != device.CPU)
	}
	return f.wait
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
	return cdevice.TraceObjects(on), nil
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
