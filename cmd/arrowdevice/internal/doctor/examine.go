package doctor

import (
	"context"
	"sync"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/version"
)

// Options are what to examine.
type Options struct {
	Python  string        // the interpreter; "" for none
	GPUs    []string      // the ordinals of those to examine; none: all
	Timeout time.Duration // for each call of the driver, and for each import
	// Progress, if it is not nil, is called with what is examined now, from several goroutines.
	Progress func(doing string)
}

// begin reports what is examined now.
func (o Options) begin(doing string) {
	if o.Progress != nil {
		o.Progress(doing)
	}
}

// ProbeCommand is the argument by which this program runs [Probe] in its child; those behind it are
// Options.GPUs.
const ProbeCommand = "probe"

// Examine examines the machine. It returns an error only if ctx is done or this program cannot
// start itself again: all other errors are findings. The report then has what is known.
func Examine(ctx context.Context, o Options) (*Report, error) {
	r := &Report{
		Arrowdevice: version.Arrowdevice(), Machine: readMachine("/"), Environment: readEnvironment(),
		Devices: []Device{}, Findings: []Finding{},
	}
	err := r.examine(ctx, o)
	if err != nil {
		r.Error = err.Error()
	}
	return r, err
}

func (r *Report) examine(ctx context.Context, o Options) error {
	var both sync.WaitGroup
	if o.Python != "" {
		both.Go(func() { r.Python = examinePython(ctx, o) })
	}
	err := r.examineDriver(ctx, o)
	both.Wait()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	r.Findings = advise(r)
	r.Usable = true
	for _, f := range r.Findings {
		r.Usable = r.Usable && f.Severity != severe
	}
	return nil
}
