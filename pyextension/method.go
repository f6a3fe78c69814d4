//go:build cgo && unix

package pyextension

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func next(in *invocation, r *reader) (any, error) {
	b, err := r.Next(in.scope.context())
	if err != nil || b == nil {
		in.results.settled(true)
		return nil, err
	}
	in.restoreIfDiscarded(r, func() []*cdevice.RecordBatch { return []*cdevice.RecordBatch{b} })
	return in.results.issue(&object{kind: kindBatch, batch: b}), nil
}

// acquire waits until no other call reads the reader. The turn of this call ends when its reply is
// taken or discarded: only then is it known which batch is the next.
func (in *invocation) acquire(r *reader) error {
	if r.scope.waitsFor(in.scope.thread) {
		return valueErrorf("the RecordReader is waiting for the source that reads it here")
	}
	select {
	case r.turn <- struct{}{}:
	case <-in.scope.context().Done():
		return context.Cause(in.scope.context())
	}
	in.results.settle = func(bool) { <-r.turn }
	return nil
}

// restoreIfDiscarded makes batches the next ones again if the reply is discarded: Python was interrupted after they had arrived,
// or another batch failed. It comes before the end of the turn.
func (in *invocation) restoreIfDiscarded(r *reader, batches func() []*cdevice.RecordBatch) {
	leave := in.results.settle
	in.results.settle = func(taken bool) {
		if !taken {
			r.unread(batches())
		}
		leave(taken)
	}
}

func readWhole(in *invocation, r *reader) (any, error) {
	var read []*cdevice.RecordBatch
	in.restoreIfDiscarded(r, func() []*cdevice.RecordBatch { return read })
	all := []any{}
	for {
		b, err := r.Next(in.scope.context())
		if err != nil {
			return nil, err
		}
		if b == nil {
			return all, nil
		}
		read = append(read, b)
		all = append(all, in.results.issue(&object{kind: kindBatch, batch: b}))
	}
}

func column(in *invocation, o *object) (any, error) {
	i, err := argument[int64](in, 1)
	if err != nil {
		return nil, err
	}
	if o.kind != kindBatch {
		return nil, wrongKind(kindBatch, o)
	}
	if i < 0 || i >= int64(o.batch.NumCols()) {
		return nil, &exception{kind: "IndexError", text: fmt.Sprintf("there is no column %d, of %d", i, o.batch.NumCols())}
	}
	return in.results.issue(&object{kind: kindArray, array: o.batch.Column(int(i))}), nil
}

func slice(in *invocation, o *object) (any, error) {
	from, err := argument[int64](in, 1)
	if err != nil {
		return nil, err
	}
	to, err := argument[int64](in, 2)
	if err != nil {
		return nil, err
	}
	switch o.kind {
	case kindBatch:
		return in.batch(o.batch.Slice(from, to))
	case kindArray:
		return in.array(o.array.Slice(from, to))
	}
	return nil, typeErrorf("a %s has no slices", o.kind)
}

// toHost views memory that the CPU can access, and copies other memory.
func toHost(in *invocation, o *object) (any, error) {
	if !o.deviceID().Type.CPUAccessible() {
		return in.copyTo(o, device.CPUDevice())
	}
	switch o.kind {
	case kindBatch:
		return in.batch(o.batch.AsCPU(in.scope.context()))
	case kindArray:
		return in.array(o.array.AsCPU(in.scope.context()))
	case kindReader:
		r, err := o.reader.take("to_host()")
		if err != nil {
			return nil, err
		}
		in.scope.under(o.reader.scope)
		return in.readerOf(r.AsCPU(in.scope.context()))
	}
	return nil, typeErrorf("a %s has no memory", o.kind)
}

func toDevice(in *invocation, o *object) (any, error) {
	name, err := argument[string](in, 1)
	if err != nil {
		return nil, err
	}
	id, err := parseDevice(name)
	if err != nil {
		return nil, err
	}
	dev, err := device.Open(id)
	if err != nil {
		return nil, err
	}
	return in.copyTo(o, dev)
}

func (in *invocation) copyTo(o *object, dev device.Device) (any, error) {
	switch o.kind {
	case kindBatch:
		return in.batch(o.batch.CopyTo(in.scope.context(), dev))
	case kindArray:
		return in.array(o.array.CopyTo(in.scope.context(), dev))
	case kindReader:
		r, err := o.reader.take("a copy")
		if err != nil {
			return nil, err
		}
		in.scope.under(o.reader.scope)
		return in.readerOf(r.CopyTo(in.scope.context(), dev))
	}
	return nil, typeErrorf("a %s has no memory", o.kind)
}

// deviceTypes are the names of devices, as to_device() has them.
var deviceTypes = map[string]device.Type{
	"cpu": device.CPU, "cuda": device.CUDA, "cuda_host": device.CUDAHost, "cuda_managed": device.CUDAManaged,
}

// parseDevice reads "cuda:0", "cuda" or "cpu".
func parseDevice(name string) (device.ID, error) {
	kind, number, numbered := strings.Cut(name, ":")
	t, ok := deviceTypes[strings.ToLower(kind)]
	if !ok {
		return device.ID{}, valueErrorf("device %q: the devices are cpu, cuda, cuda_host and cuda_managed, with a number as in cuda:0", name)
	}
	id := device.ID{Type: t}
	if t == device.CPU {
		id.Ordinal = device.NoOrdinal
	}
	if numbered {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 {
			return device.ID{}, valueErrorf("device %q: %q is not a number of a device", name, number)
		}
		if t != device.CPU {
			id.Ordinal = n
		}
	}
	return id, nil
}

func synchronize(in *invocation, o *object) (any, error) {
	switch o.kind {
	case kindBatch:
		return nil, o.batch.Synchronize(in.scope.context())
	case kindArray:
		return nil, o.array.Synchronize(in.scope.context())
	}
	return nil, typeErrorf("a %s has no event", o.kind)
}
