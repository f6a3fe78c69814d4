package metamorphic

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdata"
)

// Operations of asynchronous streams of package cdata. They use this module's package in all worlds: arrow-go's ends the process, or leaves
// a channel open, when a stream ends early.

func init() {
	register(&verb{name: "cdata async", weight: 3, draw: drawCDataAsync, expect: expectCDataAsync, do: doCDataAsync})
}

func drawCDataAsync(g *generator) (Op, bool) {
	o, ok := drawCDataLoop(g)
	if !ok {
		return o, false
	}
	g.count[hostReaderKind]--
	o.Out = g.name(recordKind)
	o.Args = []string{append(ends, "early", "early")[g.IntN(len(ends)+2)], num(g.IntN(len(o.On))), num(g.IntN(3))}
	return o, true
}

func expectCDataAsync(m *model, o Op) (string, bool) {
	var text []string
	for _, name := range o.On {
		b := m.get(name, recordKind)
		if b == nil || !b.batch || b.hasExtensions() || b.shape() != m.objects[o.On[0]].shape() {
			return "", false
		}
		text = append(text, b.String())
	}
	keep := min(o.num(1), len(o.On)-1)
	kept := m.objects[o.On[keep]]
	m.add(o.Out, recordKind, object{table: kept.table, at: cpu}, kept.holds...)
	end := "the end"
	switch o.arg(0) {
	case "source":
		end = failed("ErrNotSupported")
	case "early":
		text, end = text[:keep+1], failed("Canceled")
	case "context":
		end = failed("Canceled")
	}
	return strings.Join(append(text, end), "\n"), true
}

// doCDataAsync pushes record batches through a handler, and keeps one of those that arrive. The context ends behind the last one, or early, when others are on their way.
func doCDataAsync(r *run, o Op) string {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	first := value[arrow.RecordBatch](r, o.On[0])
	in := make(chan cdata.RecordMessage, len(o.On)+1)
	for _, name := range o.On {
		rec := value[arrow.RecordBatch](r, name)
		rec.Retain()
		in <- cdata.RecordMessage{Record: rec}
	}
	switch o.arg(0) {
	case "source":
		in <- cdata.RecordMessage{Err: syscall.ENOTSUP}
	case "":
		close(in)
	}
	handler := new(cdata.CArrowAsyncDeviceStreamHandler)
	messages := cdata.CreateAsyncDeviceStreamHandler(ctx, uint64(o.num(2)), handler)
	done := make(chan error, 1)
	go func() { done <- cdata.ExportAsyncRecordBatchStream(first.Schema(), in, handler) }()
	text := r.takeAll(ctx, <-messages, o, cancel)
	defer func() { // what is left is the program's
		for len(in) > 0 {
			if m := <-in; m.Record != nil {
				m.Record.Release()
			}
		}
	}()
	if err := <-done; o.arg(0) == "source" != errors.Is(err, syscall.ENOTSUP) || o.arg(0) != "source" && err != nil {
		return "the export has ended with " + errorText(err)
	}
	return text
}

// takeAll takes the messages of a stream to its end.
func (r *run) takeAll(ctx context.Context, s cdata.AsyncRecordBatchStream, o Op, cancel func()) string {
	if s.Err != nil {
		return s.Err.Error()
	}
	var text []string
	end := "the end"
	keep := min(o.num(1), len(o.On)-1)
	for m := range s.Stream {
		if m.Err != nil {
			end = errorText(m.Err)
			var reported cdata.AsyncStreamError
			if errors.As(m.Err, &reported) && reported.Code == int(syscall.ENOTSUP) {
				end = failed("ErrNotSupported")
			}
			continue
		}
		if o.arg(0) == "early" && ctx.Err() != nil { // how many still come is open
			m.Record.Release()
			continue
		}
		text = append(text, seenRecord(m.Record))
		if len(text) == keep+1 {
			r.values[o.Out] = m.Record
		} else {
			m.Record.Release()
		}
		if len(text) == len(o.On) && o.arg(0) == "context" || len(text) == keep+1 && o.arg(0) == "early" {
			cancel()
		}
	}
	return strings.Join(append(text, end), "\n")
}
