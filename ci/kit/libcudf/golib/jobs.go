//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("jobs", jobNames)
	pyextension.Func("make_raw", makeRaw, pyextension.WithParams("name"),
		pyextension.WithDoc("The array of a job as it is, without ForCuDF."))
}

// A job is an array or a batch that is handed to a consumer. Its name is case/variant/form.
type job struct {
	name    string
	form    form
	columns func() ([]arrow.Array, error)
}

// form is how the values of a job are presented.
type form string

const (
	column  form = "column"  // as an array
	slice   form = "slice"   // as an array that was cut on the device: without its first and last element
	table   form = "table"   // as a batch of two equal columns
	cut     form = "cut"     // as such a batch, cut on the device
	pinned  form = "pinned"  // as an array in page-locked memory
	managed form = "managed" // as an array in managed memory
	unknown form = "unknown" // as an imported array whose null counts are not known
)

// isTable reports whether a form is a record batch.
func (f form) isTable() bool { return f == table || f == cut }

// isCut reports whether a form is cut on the device.
func (f form) isCut() bool { return f == slice || f == cut }

// forms are the forms of each variant.
func forms(v cases.Variant) []form {
	switch v {
	case cases.Nulls:
		return []form{column, slice, table, cut, pinned, managed, unknown}
	case cases.Valid, cases.Sliced, masked:
		return []form{column, slice, table}
	default:
		return []form{column, table}
	}
}

var allJobs = sync.OnceValue(func() []job {
	var jobs []job
	for _, c := range cases.All() {
		for _, v := range append([]cases.Variant{masked}, cases.Variants...) {
			if v == masked && c.NoNulls {
				continue
			}
			for _, f := range forms(v) {
				jobs = append(jobs, job{fmt.Sprintf("%s/%s/%s", c.Name, v, f), f, func() ([]arrow.Array, error) {
					arr, err := makeVariant(c, v)
					return []arrow.Array{arr}, err
				}})
			}
		}
	}
	return jobs
})

func jobNames() []string {
	var names []string
	for _, j := range allJobs() {
		names = append(names, j.name)
	}
	return names
}

func findJob(name string) (job, error) {
	for _, j := range allJobs() {
		if j.name == name {
			return j, nil
		}
	}
	return job{}, fmt.Errorf("no job is called %q", name)
}

// gpu is the GPU of all jobs: the first one.
func gpu() (*cudaalloc.Device, error) { return cudaalloc.Open(0) }

// home is the device that the memory of a form is on.
func (f form) home() (*cudaalloc.Device, error) {
	dev, err := gpu()
	switch {
	case err != nil:
		return nil, err
	case f == pinned:
		return dev.Pinned(), nil
	case f == managed:
		return dev.Managed(), nil
	}
	return dev, nil
}

// batch returns the host batch of a job: a column alone, or twice as the columns of a table.
func (j job) batch() (arrow.RecordBatch, error) {
	columns, err := j.columns()
	if err != nil {
		return nil, err
	}
	defer releaseAll(columns)
	all := columns
	if j.form.isTable() && len(columns) == 1 {
		all = []arrow.Array{columns[0], columns[0]}
	}
	fields := make([]arrow.Field, len(all))
	for i, c := range all {
		fields[i] = arrow.Field{Name: fmt.Sprintf("column%d", i), Type: c.DataType(), Nullable: true}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), all, int64(all[0].Len())), nil
}

// begin makes an exchange of what ForCuDF returns for the batch of a job.
func begin(j job) (*exchange, error) {
	ctx := context.Background()
	host, there, dev, err := j.copies(ctx)
	if err != nil {
		return nil, fmt.Errorf("made on the GPU: %v", err) // not %w, by which ForCuDF's refusals are known
	}
	defer there.Release()
	x := &exchange{job: j, want: host}
	if err := x.fill(ctx, there, dev); err != nil {
		host.Release()
		return nil, err
	}
	return x, nil
}

// fill asks ForCuDF for its form of the batch, or of its column, and enqueues the work that fills that.
func (x *exchange) fill(ctx context.Context, there *cdevice.RecordBatch, dev *cudaalloc.Device) error {
	fitted, err := fit(ctx, x.job, there)
	if err != nil {
		return err
	}
	defer fitted.Release()
	if x.pending, err = spoil(ctx, fitted, dev); err != nil {
		return err
	}
	if x.made, err = fitted.recordEvent(x.pending.stream); err != nil {
		return errors.Join(err, x.pending.end())
	}
	return nil
}

// makeRaw returns the array of a job as it is, without ForCuDF and without an exchange.
func makeRaw(name string) (*cdevice.Array, error) {
	job, err := findJob(name)
	if err != nil {
		return nil, err
	}
	host, there, _, err := job.copies(context.Background())
	if err != nil {
		return nil, err
	}
	host.Release()
	defer there.Release()
	return there.Column(0), there.Synchronize(context.Background())
}

// copies returns the batch of a job on the host and on its device.
func (j job) copies(ctx context.Context) (arrow.RecordBatch, *cdevice.RecordBatch, *cudaalloc.Device, error) {
	dev, err := j.form.home()
	if err != nil {
		return nil, nil, nil, err
	}
	host, err := j.batch()
	if err != nil {
		return nil, nil, nil, err
	}
	there, err := cdevice.CopyToDevice(ctx, host, dev)
	if err != nil {
		host.Release()
		return nil, nil, nil, fmt.Errorf("copy to the device: %w", err)
	}
	if j.form == unknown {
		if there, err = withoutCounts(there); err != nil {
			host.Release()
			return nil, nil, nil, err
		}
	}
	rows := host.NumRows()
	if !j.form.isCut() || rows <= 2 {
		return host, there, dev, nil
	}
	defer host.Release()
	defer there.Release()
	part, err := there.Slice(1, rows-1)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("slice: %w", err)
	}
	return host.NewSlice(1, rows-1), part, dev, nil
}
