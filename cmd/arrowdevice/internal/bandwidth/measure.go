package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/text"
	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/version"
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

// rounds is how often each point is come back to, so that what slows the machine down for a moment
// does not hit one point alone.
const rounds = 3

// most is how many copies of a point are measured at most in one round.
const most = 10_000

// Measure measures. When ctx is done it ends after the copy in flight. The report, which is never nil, has
// the points that are complete also where an error ended the measurement; no point at all is an error.
func Measure(ctx context.Context, o Options) (*Report, error) {
	m, r, err := prepare(ctx, o)
	if err == nil {
		err = errors.Join(m.run(ctx, r, o), m.close())
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
func (m *machine) run(ctx context.Context, r *Report, o Options) error {
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
	free, _, err := m.gpu.MemoryInfo()
	if err != nil {
		return err
	}
	sizes = r.fit(sizes, free, hostMemory("/"))
	for _, size := range sizes {
		if err := m.measure(ctx, r, size, o); err != nil {
			return err
		}
	}
	return nil
}

// prepare opens the GPU. A driver that takes long does not hold up the end of ctx.
func prepare(ctx context.Context, o Options) (*machine, *Report, error) {
	simulated, err := o.Inspect(ctx)
	if err != nil {
		return nil, newReport(o, simulated), err
	}
	type opened struct {
		m   *machine
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
func (r *Report) describe(o Options) (*machine, error) {
	m, err := openMachine(o.Device)
	if err != nil {
		return nil, err
	}
	version, err := cudaalloc.DriverVersion()
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	r.CUDA = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	id, err := m.ctx.UUID()
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	r.Device.Name, r.Device.UUID = m.gpu.Name(), fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return m, nil
}

// measure measures all points of one size.
func (m *machine) measure(ctx context.Context, r *Report, size int64, o Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := m.allocate(size)
	if errors.Is(err, cudaalloc.OutOfMemory) || errors.Is(err, cudaalloc.ErrLimit) {
		r.leaveOut(size, "there is not enough memory")
		return nil
	}
	if err != nil {
		return err
	}
	err = b.rounds(ctx, r, o)
	return errors.Join(err, b.free())
}

func (b *buffers) rounds(ctx context.Context, r *Report, o Options) error {
	took := map[Direction]map[Method][]time.Duration{ToDevice: {}, ToHost: {}}
	for round := range rounds {
		for _, d := range directions {
			for _, m := range d.methods() {
				if o.Progress != nil {
					o.Progress(fmt.Sprintf("%s, %s, %s, round %d of %d", text.Bytes(b.size), d, m, round+1, rounds))
				}
				samples, err := repeat(ctx, b.copier(d, m), b.size, o.Time/rounds, round == 0)
				if err != nil {
					return err
				}
				took[d][m] = append(took[d][m], samples...)
			}
		}
	}
	for _, d := range directions {
		for _, m := range d.methods() {
			r.Points = append(r.Points, point(d, m, b.size, took[d][m]))
		}
	}
	return nil
}

// large is the size from which on Go's garbage is collected after each copy, between
// measurements: otherwise a collection falls into some of them.
const large = 16 << 20

// repeat copies for the time, at least twice, and returns how long each copy took. In the first
// round some copies before are not measured: they fill caches.
func repeat(ctx context.Context, copy copyOnce, size int64, each time.Duration, first bool) (samples []time.Duration, err error) {
	warming := 0
	if first {
		warming = 2
	}
	var spent time.Duration
	for len(samples) < 2 || spent < each && len(samples) < most {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now()
		done, err := copy()
		took := time.Since(start)
		if err != nil {
			return nil, err
		}
		if done != nil {
			done()
		}
		if size >= large {
			runtime.GC()
		}
		if warming > 0 {
			warming--
			continue
		}
		samples = append(samples, took)
		spent += took
	}
	return samples, nil
}

// point is the median of samples.
func point(d Direction, m Method, size int64, samples []time.Duration) Point {
	slices.Sort(samples)
	median := max(1, samples[len(samples)/2])
	return Point{
		Direction: d, Method: m, Bytes: size, Copies: len(samples),
		MedianNS: median.Nanoseconds(), FastestNS: samples[0].Nanoseconds(), PerSecond: float64(size) / median.Seconds(),
	}
}
