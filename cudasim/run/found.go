package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/arrowdevice/arrowdevice/cudasim/internal/findings"
	"github.com/arrowdevice/arrowdevice/cudasim/internal/ledger"
)

// found is what the machines of a program have done wrong.
type found struct {
	machines                []ledger.Machine
	violations, leaks, kept int
}

func find(machines []ledger.Machine) found {
	f := found{machines: machines}
	for _, m := range machines {
		f.violations += m.CountViolations()
		f.leaks += m.CountLeaks()
		f.kept += m.Kept
	}
	return f
}

// text is empty if there are neither violations nor leaks.
func (f found) text() []byte {
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
	if f.ofCudaalloc() {
		out.WriteString("cudasim: a Go program that has released all calls gpu.Flush before it ends; cdevicetest.CheckLeaks names the lines of the others\n")
	}
	if f.violations > 0 && !f.saysWhere() {
		out.WriteString("cudasim: the option stacks=1 says where the calls were made\n")
	}
	return out.Bytes()
}

// ofCudaalloc reports whether a leak was made by a function that package cudaalloc calls and few others do.
func (f found) ofCudaalloc() bool {
	for _, m := range f.machines {
		for _, leak := range m.Leaks {
			if strings.HasPrefix(leak, "cuMemAllocFromPoolAsync:") || strings.HasPrefix(leak, "cuMemHostAlloc:") {
				return true
			}
		}
	}
	return false
}

// saysWhere reports whether violations say where their calls were made.
func (f found) saysWhere() bool {
	for _, m := range f.machines {
		for _, violation := range m.Violations {
			if strings.Contains(violation, "queued at ") {
				return true
			}
		}
	}
	return false
}

func (f found) writeViolations(out *bytes.Buffer) {
	number := 0
	for _, m := range f.machines {
		for _, violation := range findings.Merge(m.Violations) {
			number++
			fmt.Fprintf(out, "cudasim: violation %d: %s%s\n", number, f.process(m), violation)
			if remedy := findings.Remedy(violation); remedy != "" {
				fmt.Fprintf(out, "    in Go: %s\n", remedy)
			}
			out.WriteByte('\n')
		}
		if m.MoreViolations > 0 {
			number += m.MoreViolations
			fmt.Fprintf(out, "cudasim: %s%s more\n\n", f.process(m), count(m.MoreViolations, "violation"))
		}
	}
}

func (f found) writeLeaks(out *bytes.Buffer) {
	out.WriteString("cudasim: leaks:\n")
	for _, m := range f.machines {
		for _, leak := range findings.Merge(m.Leaks) {
			fmt.Fprintf(out, "  %s%s\n", f.process(m), leak)
		}
		if m.MoreLeaks > 0 {
			fmt.Fprintf(out, "  %s%s more\n", f.process(m), count(m.MoreLeaks, "leak"))
		}
	}
}

// process names the process of m where there are several.
func (f found) process(m ledger.Machine) string {
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
