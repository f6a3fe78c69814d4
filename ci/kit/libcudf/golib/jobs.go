//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

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

// findJob returns the job of a name. A batch that numbers name is one of [numbered].
func findJob(name string) (job, error) {
	for _, j := range allJobs() {
		if j.name == name {
			return j, nil
		}
	}
	var batch int
	if _, err := fmt.Sscanf(name, "numbered/%d/table", &batch); err == nil && strings.HasSuffix(name, "/table") {
		return job{name, table, func() ([]arrow.Array, error) { return numbered(batch), nil }}, nil
	}
	return job{}, fmt.Errorf("no job is called %q", name)
}

// numbered returns columns whose values, null counts and length depend on the number of a batch.
func numbered(batch int) []arrow.Array {
	integers, texts := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	defer integers.Release()
	defer texts.Release()
	for row := range 100 + batch%64 {
		if (row+batch)%7 == 0 {
			integers.AppendNull()
			texts.AppendNull()
			continue
		}
		integers.Append(int64(batch)*1000 + int64(row))
		texts.Append(fmt.Sprintf("batch %d, row %d", batch, row))
	}
	return []arrow.Array{integers.NewArray(), texts.NewArray()}
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
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
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

// begin makes an exchange of what ForCuDF returns for the batch of a job. A refusal is text.
func begin(j job) (x *exchange, refused string, err error) {
	ctx := context.Background()
	host, there, dev, err := j.copies(ctx)
	if err != nil {
		return nil, "", err
	}
	defer host.Release()
	defer there.Release()
	return prepare(ctx, j, host, there, dev)
}

// exportRaw exports the array of a job without ForCuDF.
func exportRaw(j job, out *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) error {
	ctx := context.Background()
	host, there, _, err := j.copies(ctx)
	if err != nil {
		return err
	}
	defer host.Release()
	defer there.Release()
	if err := there.Synchronize(ctx); err != nil {
		return err
	}
	if j.form.isTable() {
		return cdevice.ExportRecordBatch(there, out, schema)
	}
	a := there.Column(0)
	defer a.Release()
	return cdevice.ExportArray(a, out, schema)
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

// prepare asks ForCuDF for its form of the batch, or of its column.
func prepare(ctx context.Context, j job, host arrow.RecordBatch, there *cdevice.RecordBatch, dev *cudaalloc.Device) (*exchange, string, error) {
	fitted, err := fit(ctx, j, there)
	if err != nil {
		if refusal(err) {
			return nil, err.Error(), nil
		}
		return nil, "", fmt.Errorf("ForCuDF: %w", err)
	}
	p, err := spoil(ctx, fitted, dev)
	if err != nil {
		fitted.Release()
		return nil, "", err
	}
	late, err := fitted.recordEvent(p.stream)
	fitted.Release()
	if err != nil {
		p.end()
		return nil, "", err
	}
	host.Retain()
	return &exchange{job: j, want: host, made: late, pending: p}, "", nil
}

// beginNumbered is begin for a batch of [numbered].
func beginNumbered(number int64) (*exchange, error) {
	job, err := findJob(fmt.Sprintf("numbered/%d/table", number))
	if err != nil {
		return nil, err
	}
	x, reason, err := begin(job)
	if err == nil && reason != "" {
		err = errors.New(reason)
	}
	return x, err
}
