// Command speed measures this library beside the driver, for the kit (ci/gpu). It prints a line for each row: how long a
// call of ours took, and one of the driver's, which were made in turns.
//
// Each row is written to $KIT_OUT/rows.tsv as soon as it is measured: name, microseconds of ours, of the driver's, and the
// driver's divided by ours. A row that is there already is printed, and not measured again. If rows are left at the end of
// $KIT_SECONDS, the exit status is 75, and another run measures them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/measure"
)

// statusLeft is that of a section that another run goes on with.
const statusLeft = 75

func main() {
	status, err := run(context.Background(), os.Getenv, os.Stdout)
	if err != nil {
		fmt.Println("FAIL speed:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

// reserve is the time that is left at the end to end what was begun.
const reserve = 10 * time.Second

// run runs the section, and returns its exit status.
func run(ctx context.Context, env func(string) string, out io.Writer) (status int, err error) {
	seconds, err := strconv.Atoi(or(env("KIT_SECONDS"), "480"))
	if err != nil {
		return 0, fmt.Errorf("KIT_SECONDS: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, max(time.Second, time.Duration(seconds)*time.Second-reserve))
	defer cancel()
	simulated := env("KIT_SIMULATED") != ""
	rows, err := openRows(filepath.Join(or(env("KIT_OUT"), "."), "rows.tsv"), out)
	if err != nil {
		return 0, err
	}
	defer rows.close()
	done, _ := os.ReadFile(env("KIT_DONE"))
	rows.done = strings.Split(string(done), "\n")
	m, err := measure.Open(0)
	if err != nil {
		return 0, err
	}
	all := everything(simulated)
	each := 60 * time.Millisecond
	if simulated {
		each = time.Millisecond
	}
	for _, c := range all {
		switch err := c.measure(ctx, m, rows, each); {
		case ctx.Err() != nil:
		case errors.Is(err, device.ErrNotSupported):
			rows.skip(c, err)
		case err != nil:
			fmt.Fprintf(out, "FAIL %s: %v\n", c.name, err)
		}
	}
	err = m.Close()
	switch missing := rows.judge(all, simulated); {
	case missing > 0 && ctx.Err() != nil:
		status = statusLeft
	case missing > 0:
		fmt.Fprintf(out, "FAIL rows: %d are missing\n", missing)
	}
	return status, err
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
