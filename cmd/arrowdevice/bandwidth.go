package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/bandwidth"
	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/doctor"
)

func runBandwidth(ctx context.Context, args []string) int {
	f := flags("bandwidth")
	var o bandwidth.Options
	f.Int64Var(&o.Device, "device", 0, "the `number` of the GPU")
	sizes := f.String("sizes", "", "the `sizes` of a copy, such as 64K,1M,1G; without it "+bandwidth.DefaultSizes+", simulated "+bandwidth.SimulatedSizes)
	f.DurationVar(&o.Time, "time", 200*time.Millisecond, "how long each point is measured")
	timeout := f.Duration("timeout", time.Minute, "how long a call of the driver may take before it is measured")
	asJSON := f.Bool("json", false, "print the measurements as JSON")
	if status, ok := parse(f, args); !ok {
		return status
	}
	if err := errors.Join(positive("timeout", *timeout), check(&o, *sizes)); err != nil {
		fmt.Fprintln(os.Stderr, "arrowdevice:", err)
		return statusUsage
	}
	inspect := doctor.Options{GPUs: []string{strconv.FormatInt(o.Device, 10)}, Timeout: *timeout}
	o.Inspect = func(ctx context.Context) (bool, error) { return doctor.InspectDriver(ctx, inspect) }
	var clear func()
	o.Progress, clear = progress()
	report, err := bandwidth.Measure(ctx, o)
	clear()
	if *asJSON || len(report.Points) > 0 {
		err = errors.Join(err, write(os.Stdout, *asJSON, report, report.Print))
	}
	if err != nil {
		return failed(err)
	}
	return statusOK
}

// check completes the options.
func check(o *bandwidth.Options, sizes string) (err error) {
	if err := positive("time", o.Time); err != nil {
		return err
	}
	if sizes != "" {
		if o.Sizes, err = bandwidth.ParseSizes(sizes); err != nil {
			return fmt.Errorf("--sizes: %w", err)
		}
	}
	return nil
}
