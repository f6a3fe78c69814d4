package callsite_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/callsite"
)

const module = "github.com/arrowdevice/arrowdevice/"

var (
	inner   = runtime.Frame{Function: module + "internal/gpu.(*Heap).take", File: "heap.go", Line: 1}
	outer   = runtime.Frame{Function: module + "cdevice.CopyToDevice", File: "copy.go", Line: 2}
	program = runtime.Frame{Function: "main.load", File: "/home/load.go", Line: 14}
	example = runtime.Frame{Function: module + "examples/sql.load", File: "load.go", Line: 4}
	test    = runtime.Frame{Function: module + "cdevice.TestX", File: "x_test.go", Line: 5}
	builder = runtime.Frame{Function: "github.com/apache/arrow-go/v18/arrow/memory.(*Buffer).Reserve", File: "buffer.go", Line: 143}
	panics  = runtime.Frame{Function: "runtime.gopanic", File: "panic.go", Line: 6}
	cleanup = runtime.Frame{Function: "testing.(*common).Cleanup.func1", File: "testing.go", Line: 7}
	entry   = runtime.Frame{Function: "runtime.main", File: "proc.go", Line: 3}
)

func TestOf(t *testing.T) {
	const ofProgram = "main.load (load.go:14), in cdevice.CopyToDevice"
	for _, c := range []struct {
		want   string
		frames []runtime.Frame
	}{
		{ofProgram, []runtime.Frame{inner, outer, program, entry}},
		{ofProgram, []runtime.Frame{outer, program}},
		{"cdevice.CopyToDevice", []runtime.Frame{inner, outer, entry}},
		{"internal/gpu.(*Heap).take", []runtime.Frame{inner}},
		{ofProgram, []runtime.Frame{outer, builder, builder, program}},
		{ofProgram, []runtime.Frame{outer, panics, program, entry}}, // a deferred call
		{"testing.(*common).Cleanup.func1 (testing.go:7), in cdevice.CopyToDevice", []runtime.Frame{outer, cleanup, cleanup, entry}},
		{"", []runtime.Frame{entry}},
		{"", nil},
		{module + "examples/sql.load (load.go:4), in cdevice.CopyToDevice", []runtime.Frame{outer, example}},
		{module + "cdevice.TestX (x_test.go:5), in cdevice.CopyToDevice", []runtime.Frame{outer, test}},
	} {
		assert.Equal(t, c.want, callsite.Of(iterate(c.frames)))
	}
}

func iterate(frames []runtime.Frame) func() (runtime.Frame, bool) {
	return func() (f runtime.Frame, more bool) {
		if len(frames) > 0 {
			f, frames = frames[0], frames[1:]
		}
		return f, len(frames) > 0
	}
}
