package metamorphic

import (
	"context"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations of readers that have ended, or whose exported streams have.

func init() {
	register(
		&verb{name: "misuse reader", weight: 2, draw: drawMisuseReader, expect: expectMisuseReader, do: doMisuseReader},
		&verb{name: "wait", weight: 3, draw: drawWait, expect: expectWait, do: doWait},
	)
}

var readerMisuses = []string{"next", "loop", "copy", "as cpu", "export", "retain", "release"}

func drawMisuseReader(g *generator) (Op, bool) {
	var fit []string
	for _, name := range g.m.order {
		if o := g.m.dead(name, readerKind, arrayReaderKind); o != nil && gone(o) {
			fit = append(fit, name)
		}
	}
	if len(fit) == 0 {
		return Op{}, false
	}
	return Op{On: []string{fit[g.IntN(len(fit))]}, Args: []string{readerMisuses[g.IntN(len(readerMisuses))]}}, true
}

// gone reports whether a reader has no reference left, and its end was not seen before.
func gone(s *object) bool {
	f := s.flow()
	return s.source().users == 0 && !f.taken && !f.over && !f.unsure && !f.async && !f.busy
}

func expectMisuseReader(m *model, o Op) (string, bool) {
	s := m.dead(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !gone(s) {
		return "", false
	}
	switch o.arg(0) {
	case "next", "loop":
		return "closed", true
	case "retain", "release":
		return "panic " + failed("ErrReleased"), true
	}
	return failed("ErrReleased"), true
}

func doMisuseReader(r *run, o Op) string {
	s := value[reader](r, o.On[0])
	b, batches := s.(*cdevice.RecordReader)
	a, _ := s.(*cdevice.ArrayReader)
	var err error
	switch o.arg(0) {
	case "next":
		if s.Next() {
			return "an item"
		}
		return describe(s.Err())
	case "loop":
		if batches {
			for _, err = range b.All() {
			}
		} else {
			for _, err = range a.All() {
			}
		}
		return describe(err)
	case "copy":
		if batches {
			_, err = b.CopyTo(background, r.home)
		} else {
			_, err = a.CopyTo(background, r.home)
		}
	case "as cpu":
		if batches {
			_, err = b.AsCPU(background)
		} else {
			_, err = a.AsCPU(background)
		}
	case "export":
		out := foreign.NewDeviceStream()
		defer foreign.Forget(out)
		err = exportStream(s, out)
	case "retain":
		return panicText(s.Retain)
	case "release":
		return panicText(s.Release)
	}
	return errorText(err)
}

func drawWait(g *generator) (Op, bool) {
	s := g.one(given(waitable), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	o := Op{On: []string{s.name}}
	if s.flow().exports > 0 {
		o.Args = []string{"open"}
	}
	return o, true
}

// waitable reports whether the end of the exported streams of a reader is known.
func waitable(s *object) bool {
	f := s.flow()
	return !f.passed && !f.unsure && !f.async
}

func expectWait(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !waitable(s) {
		return "", false
	}
	f := s.flow()
	switch {
	case (f.exports > 0) != (o.arg(0) == "open"):
		return "", false
	case f.given == 0:
		return failed("ErrInvalid"), true
	case f.exports > 0:
		return failed("DeadlineExceeded"), true
	}
	return f.why.seen(), true
}

func doWait(r *run, o Op) string {
	s := value[reader](r, o.On[0])
	enough := limit() // a release that was asked for may be on its way on another goroutine
	if o.arg(0) == "open" {
		enough = 2 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(background, enough)
	defer cancel()
	err := s.Wait(ctx)
	if seen, ok := knownEnd(err); ok {
		return seen
	}
	return errorText(err)
}
