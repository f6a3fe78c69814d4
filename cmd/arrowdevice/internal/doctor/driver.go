package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// InspectDriver asks the driver in a child process, and reports whether it is the simulated one. The error says why a
// process should not load it: it crashed, did not return in time, or refuses. That of a GPU is not among them.
func InspectDriver(ctx context.Context, o Options) (simulated bool, err error) {
	var r Report
	err = r.examineDriver(ctx, o)
	if failed := r.Driver.Failure; failed != nil {
		err = errors.New(failed.Text)
		if failed.Died || failed.TimedOut {
			err = fmt.Errorf("the driver fails: %w", err)
		}
	}
	return r.Simulated, err
}

// examineDriver runs the child process that asks the driver, and adds its answers to the report.
func (r *Report) examineDriver(ctx context.Context, o Options) error {
	r.Driver = Driver{Path: cuda.DefaultPath()}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, append([]string{ProbeCommand}, o.GPUs...)...)
	child.Env = append(os.Environ(), "GOTRACEBACK=none") // a crash is the driver's, and Go's stacks do not explain it
	step, done := "start", false
	end, err := follow(ctx, child, o.Timeout, func(line []byte) {
		var m message
		if json.Unmarshal(line, &m) != nil {
			return // the driver's own
		}
		switch {
		case m.Step != "":
			step = m.Step
			o.begin(step)
		case m.Driver != nil:
			r.Driver, r.Simulated = *m.Driver, m.Simulated
		case m.Device != nil:
			r.learn(*m.Device)
		case m.Done:
			done = true
		}
	})
	if err != nil {
		return err
	}
	r.Driver.Release = release.FindString(filepath.Base(r.Driver.File))
	switch {
	case done:
	case end.timedOut:
		r.Driver.Failure = &Failure{Call: step, TimedOut: true, Text: fmt.Sprintf("%s did not return within %s", step, o.Timeout)}
		if end.stuck {
			r.Driver.Failure.Text += ", and its process cannot be killed: it hangs in the kernel"
		}
	default:
		text := fmt.Sprintf("the process ended in %s (%s)", step, cmp.Or(end.died, "exit status 0"))
		if last := crash(end.stderr); last != "" {
			text += ": " + last
		}
		r.Driver.Failure = &Failure{Call: step, Died: true, Text: text}
	}
	return nil
}

// crash is the line of a process's last words that has the reason: the first, because Go's runtime
// prints more below it.
func crash(stderr string) string {
	first, _, _ := strings.Cut(stderr, "\n")
	return first
}

func (r *Report) learn(d Device) {
	for i := range r.Devices {
		if r.Devices[i].Ordinal == d.Ordinal {
			r.Devices[i] = d
			return
		}
	}
	r.Devices = append(r.Devices, d)
}
