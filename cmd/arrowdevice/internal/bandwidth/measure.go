package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/text"
	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/version"
	"github.com/arrowdevice/arrowdevice/internal/measure"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Options are what to measure.
type Options struct {
	Device int64
	Sizes  []int64       // nil: DefaultSizes, or SimulatedSizes
	Time   time.Duration // for each point
	// Inspect reports whether the driver is simulated. It is called before the driver is loaded, which an error prevents.
	Inspect func(context.Context) (simulated bool, err error)
	// Progress, if it is not nil, is called with what is measured now.
	Progress func(doing string)
}

// Measure measures. When ctx is done it ends after the copy in flight. The report, which is never nil, has
// the points that are complete also where an error ended the measurement; no point at all is an error.
func Measure(ctx context.Context, o Options) (*Report, error) {
	m, r, err := prepare(ctx, o)
	if err == nil {
		err = errors.Join(r.run(ctx, m, o), m.Close())
	}
	if err == nil && len(r.Points) == 0 {
		err = r.nothing()
	}
	if err != nil {
		r.Error, r.Interrupted = err.Error(), ctx.Err() != nil
	}
	r.summarize()
	return r, err
}

// run measures all sizes.
func (r *Report) run(ctx context.Context, m *measure.Machine, o Options) error {
	sizes := o.Sizes
	if sizes == nil {
		list := DefaultSizes
		if r.Simulated {
			list = SimulatedSizes
		}
		var err error
		if sizes, err = ParseSizes(list); err != nil {
			return err
		}
	}
	free, _, err := m.GPU.MemoryInfo()
	if err != nil {
		return err
	}
	sizes = r.fit(sizes, free, hostMemory("/"))
	for _, size := range sizes {
		if err := r.measure(ctx, m, size, o); err != nil {
			return err
		}
	}
	return nil
}

// prepare opens the GPU. A driver that takes long does not hold up the end of ctx.
func prepare(ctx context.Context, o Options) (*measure.Machine, *Report, error) {
	simulated, err := o.Inspect(ctx)
	if err != nil {
		return nil, newReport(o, simulated), err
	}
	type opened struct {
		m   *measure.Machine
		r   *Report
		err error
	}
	result := make(chan opened, 1)
	go func() {
		r := newReport(o, simulated)
		m, err := r.describe(o)
		result <- opened{m, r, err}
	}()
	select {
	case got := <-result:
		return got.m, got.r, got.err
	case <-ctx.Done():
		return nil, newReport(o, simulated), ctx.Err()
	}
}

func newReport(o Options, simulated bool) *Report {
	return &Report{
		Arrowdevice: version.Arrowdevice(), Simulated: simulated, Device: Device{Ordinal: o.Device}, TimePerNS: o.Time.Nanoseconds(),
		Points: []Point{}, LeftOut: []LeftOut{},
	}
}

// describe opens the GPU, and adds what it is.
func (r *Report) describe(o Options) (*measure.Machine, error) {
	m, err := measure.Open(o.Device)
	if err != nil {
		return nil, err
	}
	version, err := cudaalloc.DriverVersion()
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	r.CUDA = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	id, err := m.Context.UUID()
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	r.Device.Name, r.Device.UUID = m.GPU.Name(), fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return m, nil
}

// measure measures all points of one size.
func (r *Report) measure(ctx context.Context, m *measure.Machine, size int64, o Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := m.Allocate(size, 1)
	if errors.Is(err, cudaalloc.OutOfMemory) || errors.Is(err, cudaalloc.ErrLimit) {
		r.leaveOut(size, "there is not enough memory")
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(r.copies(ctx, b, o), b.Free())
}

// copies measures copies of one size by all methods.
func (r *Report) copies(ctx context.Context, b *measure.Buffers, o Options) error {
	var points []Point
	var calls []measure.Call
	for _, d := range directions {
		for _, m := range d.methods() {
			points = append(points, Point{Direction: d, Method: m, Bytes: b.Size})
			calls = append(calls, call(b, d, m))
		}
	}
	turns := measure.Turns{Each: o.Time, Bytes: b.Size}
	if o.Progress != nil {
		turns.Progress = func(i, round int) {
			o.Progress(fmt.Sprintf("%s, %s, %s, round %d of %d", text.Bytes(b.Size), points[i].Direction, points[i].Method, round+1, measure.Rounds))
		}
	}
	took, err := turns.Measure(ctx, calls)
	if err != nil {
		return err
	}
	for i, p := range points {
		r.Points = append(r.Points, p.of(took[i]))
	}
	return nil
}

// call is a copy by a method.
func call(b *measure.Buffers, d Direction, m Method) measure.Call {
	switch {
	case m == Plain:
		return b.Now(b.Plain, d == ToDevice)
	case m == Pinned:
		return b.ByDriver(b.Locked, d == ToDevice, b.Size)
	case d == ToDevice && m == OursPinned:
		return b.ToDevice(b.RecLocked)
	case d == ToDevice:
		return b.ToDevice(b.Record)
	}
	return b.ToHost(map[Method]memory.Allocator{Ours: memory.NewGoAllocator(), OursReused: &b.Used, OursPinned: b.Pinned}[m])
}

// of is the point with its samples.
func (p Point) of(samples []time.Duration) Point {
	median := measure.Median(samples)
	p.Copies, p.MedianNS, p.FastestNS = len(samples), median.Nanoseconds(), samples[0].Nanoseconds()
	p.PerSecond = float64(p.Bytes) / median.Seconds()
	return p
}
