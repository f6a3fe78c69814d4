package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/arrowdevice/arrowdevice/cudasim/internal/ledger"
)

// findings is what the machines of a program have done wrong.
type findings struct {
	machines                []ledger.Machine
	violations, leaks, kept int
}

func find(machines []ledger.Machine) findings {
	f := findings{machines: machines}
	for _, m := range machines {
		f.violations += m.CountViolations()
		f.leaks += m.CountLeaks()
		f.kept += m.Kept
	}
	return f
}

// text is empty if there are neither violations nor leaks.
func (f findings) text() []byte {
	var out bytes.Buffer
	if f.violations == 0 && f.leaks == 0 {
		return nil
	}
	f.writeViolations(&out)
	if f.leaks > 0 {
		f.writeLeaks(&out)
	}
	fmt.Fprintf(&out, "cudasim: %s, %s", count(f.violations, "violation"), count(f.leaks, "leak"))
	if f.kept > 0 {
		fmt.Fprintf(&out, " (and %s that libraries keep in caches)", count(f.kept, "object"))
	}
	out.WriteByte('\n')
	return out.Bytes()
}

func (f findings) writeViolations(out *bytes.Buffer) {
	number := 0
	for _, m := range f.machines {
		for _, violation := range m.Violations {
			number++
			fmt.Fprintf(out, "cudasim: violation %d: %s%s\n\n", number, f.process(m), strings.ReplaceAll(violation, "; ", ";\n    "))
		}
		if m.MoreViolations > 0 {
			fmt.Fprintf(out, "cudasim: %s%s more\n\n", f.process(m), count(m.MoreViolations, "violation"))
		}
	}
}

func (f findings) writeLeaks(out *bytes.Buffer) {
	out.WriteString("cudasim: leaks:\n")
	for _, m := range f.machines {
		for _, leak := range ledger.Summary(m.Leaks, m.MoreLeaks...) {
			fmt.Fprintf(out, "  %s%s\n", f.process(m), leak)
		}
	}
	if f.leakInGo() {
		out.WriteString("  Memory that was released, and that a stream may still use, is freed later: call gpu.Flush before the program ends.\n")
	}
}

// leakInGo reports whether a leak was made by a package of this module: "made at main.load (load.go:14), in cdevice.CopyToDevice".
func (f findings) leakInGo() bool {
	return slices.ContainsFunc(f.machines, func(m ledger.Machine) bool {
		return slices.ContainsFunc(m.Leaks, func(leak string) bool { return strings.Contains(leak, ", in ") })
	})
}

// process names the process of m where there are several.
func (f findings) process(m ledger.Machine) string {
	if len(f.machines) == 1 {
		return ""
	}
	return fmt.Sprintf("process %d (%s): ", m.Process, m.Program)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
