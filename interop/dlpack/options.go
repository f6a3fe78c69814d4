package dlpack

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// The operations that errors name.
const (
	opExport = "dlpack: export"
	opImport = "dlpack: import"
)

// Options are interfaces, so that WithStream is an option of exports and imports, and each other option of one of them.

// ExportOption is an option of an export.
type ExportOption interface{ applyExport(*exportOptions) }

// ImportOption is an option of an import.
type ImportOption interface{ applyImport(*importOptions) }

// Option is an option of exports and imports.
type Option interface {
	ExportOption
	ImportOption
}

type exportOptions struct {
	stream  device.Stream
	number  int64 // of WithStreamNumber
	byNum   bool  // WithStreamNumber names the stream
	pending bool
	noNulls bool
	flags   uint64
	err     error
}

type importOptions struct {
	stream device.Stream
	array  []cdevice.ImportOption
	err    error
}

// apply calls do for each option, and returns the first error about one that is nil.
func apply[O any](op string, opts []O, do func(O)) (err error) {
	for i, opt := range opts {
		switch {
		case !argument.IsNil(opt):
			do(opt)
		case err == nil:
			err = argument.Nil(op, fmt.Sprintf("opts[%d]", i), "an option")
		}
	}
	return err
}

type exportOption func(*exportOptions)

func (f exportOption) applyExport(o *exportOptions) { f(o) }

type importOption func(*importOptions)

func (f importOption) applyImport(o *importOptions) { f(o) }

// WithStream names the stream on which the consumer uses the data.
//
// For an export it is the stream of the consumer: work enqueued on it from now on waits for the array's
// event, and after the call of the deleter the memory is kept until pending work of the stream's device
// has completed. The export itself does not wait.
//
// For an import it is the stream that was passed to the producer: work enqueued on it from now on may
// read the data, so the array gets an event that is recorded on it (see cdevice.Array.WithEvent).
// After the last release of the array, the deleter is called when pending work of the stream's device
// has completed.
func WithStream(s device.Stream) Option { return streamOption{s} }

type streamOption struct{ s device.Stream }

func (o streamOption) applyExport(e *exportOptions) {
	e.stream, e.byNum = o.s, false
	if argument.IsNil(o.s) {
		e.err = fielderr.Absent(opExport, "WithStream", "a stream")
	}
}

func (o streamOption) applyImport(i *importOptions) {
	i.stream = o.s
	if argument.IsNil(o.s) {
		i.err = fielderr.Absent(opImport, "WithStream", "a stream")
	}
}

// WithStreamNumber is [WithStream] with the stream argument of __dlpack__, an integer that the Python
// array API standard defines, for a stream of the array's device; see [StreamOf]. The number -1 is
// [WithPending].
//
// For a number that the device does not have, the error of the export wraps arrow.ErrInvalid; if the
// device cannot be opened, device.ErrNotSupported. Only the driver knows whether another number is the
// handle of a stream, and it is asked only for an array with an event: its error wraps neither, and
// some drivers crash.
func WithStreamNumber(n int64) ExportOption {
	return exportOption(func(o *exportOptions) { o.number, o.byNum = n, true })
}

// WithPending exports an array although its event is not complete. The consumer orders its work by
// other means: it knows the event, or it waits for the device.
func WithPending() ExportOption { return exportOption(func(o *exportOptions) { o.pending = true }) }

// WithoutNulls declares that no element is null, for an array whose nulls are unknown and are not
// counted by the export: such as a slice, in memory that the CPU cannot access, of an array with
// nulls. See cdevice.Array.CountNulls. An array that is known to have nulls is refused all the
// same.
func WithoutNulls() ExportOption { return exportOption(func(o *exportOptions) { o.noNulls = true }) }

// WithIsCopied sets [FlagIsCopied]: the array is a copy that no other part of the program uses, so
// the consumer may write to it. [FlagReadOnly] is then not set. The legacy form has no flags.
func WithIsCopied() ExportOption {
	return exportOption(func(o *exportOptions) { o.flags = FlagIsCopied })
}

// WithImportOptions passes options of package cdevice: cdevice.WithGIL for a producer whose deleter needs
// Python's lock, cdevice.WithReleaser, cdevice.WithDevice, cdevice.WithCPUAccessible. They apply to the deleter as they do
// to a release callback, even of a tensor that the import refuses.
func WithImportOptions(opts ...cdevice.ImportOption) ImportOption {
	return importOption(func(o *importOptions) { o.array = append(o.array, opts...) })
}
