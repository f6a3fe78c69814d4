package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/terminal"
)

// Table writes the report for a person.
func (r *Report) Table(w io.Writer, style terminal.Style, width int) {
	t := table{w: w, style: style, width: max(60, min(width, 120))}
	t.line("arrowdevice doctor " + r.Arrowdevice)
	if r.Simulated {
		t.line(style.Yellow("simulated driver: no GPU"))
	}
	t.driver(r)
	for _, d := range r.Devices {
		t.device(d)
	}
	if len(r.Devices) > 1 {
		t.peerAccess(r.Devices)
	}
	t.machine(r.Machine)
	if len(r.Environment) > 0 {
		t.heading("Environment")
		for _, v := range r.Environment {
			value := v.Value
			if value == "" {
				value = `""`
			}
			t.noted(v.Name, value, v.Means)
		}
	}
	t.python(r.Python)
	t.findings(r)
}

// table writes headings, and below them names and values.
type table struct {
	w     io.Writer
	style terminal.Style
	width int
}

func (t *table) line(text string) { fmt.Fprintln(t.w, strings.TrimRight(text, " ")) }

func (t *table) heading(text string) {
	t.line("")
	t.line(t.style.Bold(text))
}

// names is the width of the names of rows.
const names = 20

// row writes a fact; facts that are not known have no row.
func (t *table) row(name, value string) {
	t.painted(name, value, func(line string) string { return line })
}

// painted is row with a colour, which paint gives to each line.
func (t *table) painted(name, value string, paint func(string) string) {
	if value == "" {
		return
	}
	for _, line := range terminal.Wrap(value, t.width-names-4) {
		t.line(fmt.Sprintf("  %-*s  %s", names, name, paint(line)))
		name = ""
	}
}

// noted writes a fact with a remark: behind it, or below it where the line would be too long.
func (t *table) noted(name, value, note string) {
	if room := t.width - names - 6; note != "" && len(value)+len(note) <= room {
		t.line(fmt.Sprintf("  %-*s  %s", names, name, value+t.style.Dim("  "+note)))
		return
	}
	t.row(name, value)
	t.painted("", note, t.style.Dim)
}

// yes is the answer of a flag, "" if it is not known.
func yes(b *bool) string {
	switch {
	case b == nil:
		return ""
	case *b:
		return "yes"
	}
	return "no"
}

func (t *table) driver(r *Report) {
	d := r.Driver
	t.heading("Driver")
	library := d.Path
	if d.File != "" && d.File != d.Path {
		library += " -> " + d.File
	}
	if d.File == "" && d.Functions == 0 {
		t.painted("library", library+": cannot be loaded", t.style.Red)
	} else {
		t.row("library", library)
	}
	t.row("version", d.Release)
	if d.CUDA != "" {
		t.row("supports CUDA", d.CUDA)
	}
	if d.Functions > 0 {
		absent := slices.Concat(d.AbsentNeeded, d.AbsentOptional)
		if len(absent) > 0 {
			t.painted("functions", fmt.Sprintf("%d of %d; absent: %s", d.Functions-len(absent), d.Functions, strings.Join(absent, ", ")), t.style.Yellow)
		} else {
			t.row("functions", fmt.Sprintf("all %d that this library uses", d.Functions))
		}
	}
	if d.Failure != nil && d.Failure.Call != "load" {
		t.painted(d.Failure.Call, d.Failure.Text, t.style.Red)
	}
}

func (t *table) device(d Device) {
	t.heading(fmt.Sprintf("cuda:%d  %s", d.Ordinal, d.Name))
	chip := d.ComputeCapability
	for _, part := range []struct {
		n    *int
		what string
	}{{d.Multiprocessors, "multiprocessors"}, {d.CopyEngines, "copy engines"}} {
		if part.n != nil {
			chip += fmt.Sprintf(", %d %s", *part.n, part.what)
		}
	}
	t.row("compute capability", chip)
	memory := terminal.Bytes(d.MemoryTotal)
	if d.MemoryFree != nil {
		memory += ", " + terminal.Bytes(*d.MemoryFree) + " free"
	}
	if d.ECC != nil {
		memory += map[bool]string{true: ", ECC on", false: ", ECC off"}[*d.ECC]
	}
	if d.Integrated != nil && *d.Integrated {
		memory += ", the CPU's own"
	}
	t.row("memory", memory)
	t.row("PCI address", d.PCI)
	t.row("UUID", d.UUID)
	if d.MIG {
		t.row("MIG", "a part of a GPU")
	}
	if d.ComputeMode == "default" {
		t.row("compute mode", d.ComputeMode)
	} else {
		t.painted("compute mode", d.ComputeMode, t.style.Yellow)
	}
	t.pools(d)
	t.tried("page-locking", d.PageLock, "1 MiB in "+duration(d.PageLockTime))
	t.tried("registering memory", d.HostRegister, "1 MiB")
	managed := yes(d.Managed)
	if managed == "yes" && d.ConcurrentManaged != nil {
		managed += map[bool]string{true: ", and the CPU may use it while the GPU works", false: ", but not by the CPU while the GPU works"}[*d.ConcurrentManaged]
	}
	t.row("managed memory", managed)
	t.row("pageable memory", map[string]string{"yes": "the GPU can read it", "no": "the GPU cannot read it"}[yes(d.PageableAccess)])
	t.row("unified addressing", yes(d.UnifiedAddressing))
	t.row("events over IPC", yes(d.IPCEvents))
	if d.Failure != nil {
		t.painted(d.Failure.Call, d.Failure.Text, t.style.Red)
	}
}

// duration returns microseconds, rounded, for people.
func duration(ns int64) string {
	if ns < 10_000_000 {
		return fmt.Sprintf("%d µs", (ns+500)/1000)
	}
	return fmt.Sprintf("%d ms", (ns+500_000)/1_000_000)
}

// tried writes how a trial went.
func (t *table) tried(name, result, what string) {
	if result == "ok" {
		t.painted(name, "ok, "+what, t.style.Green)
		return
	}
	t.painted(name, result, t.style.Red)
}

func (t *table) pools(d Device) {
	text := yes(d.Pools)
	if text == "yes" {
		handles := "none"
		if len(d.PoolHandles) > 0 {
			handles = strings.Join(d.PoolHandles, ", ")
		}
		text += "; handles for other processes: " + handles
		if d.DefaultPoolKeeps != nil {
			keeps := terminal.Bytes(int64(min(*d.DefaultPoolKeeps, 1<<62)))
			if *d.DefaultPoolKeeps > 1<<62 {
				keeps = "everything"
			}
			text += "; the default pool keeps " + keeps
		}
	}
	t.row("stream-ordered pools", text)
}

// peerAccess writes which GPU can reach the memory of which.
func (t *table) peerAccess(devices []Device) {
	t.heading("Peer access")
	cells := func(name string, cell func(to Device) string) {
		line := fmt.Sprintf("  %-*s  ", names, name)
		for _, to := range devices {
			line += fmt.Sprintf("%-8s", cell(to))
		}
		t.line(line)
	}
	cells("from, to", func(to Device) string { return fmt.Sprintf("cuda:%d", to.Ordinal) })
	for _, from := range devices {
		cells(fmt.Sprintf("cuda:%d", from.Ordinal), func(to Device) string {
			switch {
			case from.Ordinal == to.Ordinal:
				return "-"
			case slices.Contains(from.PeerAccess, to.Ordinal):
				return "yes"
			}
			return "no"
		})
	}
}

func (t *table) machine(m Machine) {
	t.heading("Machine")
	module := m.KernelModule
	if module == "" {
		module = "none of NVIDIA"
	}
	t.row("kernel module", module)
	files := "none"
	if len(m.DeviceFiles) > 0 {
		files = list(m.DeviceFiles)
	}
	t.row("GPU device files", files)
	t.row("libcuda.so.1 in", strings.Join(m.Libraries, ", "))
	if m.Container != "" {
		t.row("container", "yes ("+m.Container+")")
	}
	if m.WSL {
		t.row("WSL", "yes")
	}
	if m.LockedMemory != nil {
		limit := "no limit"
		if *m.LockedMemory >= 0 {
			limit = "at most " + terminal.Bytes(*m.LockedMemory)
		}
		t.row("locked memory", limit)
	}
}

func (t *table) findings(r *Report) {
	switch {
	case len(r.Findings) == 0 && r.Simulated:
		t.heading("Nothing is wrong.")
		t.paragraph("", "The driver is simulated: there is no GPU, kernels do not run, and measured times mean nothing.", 0)
		return
	case len(r.Findings) == 0:
		t.heading("Nothing is wrong.")
		return
	}
	t.heading("What is wrong, and what to do")
	for _, f := range r.Findings {
		mark := t.style.Red("error  ")
		if f.Severity == mild {
			mark = t.style.Yellow("warning")
		}
		t.paragraph("  "+mark+"  ", f.Problem, 11)
		if f.Remedy != "" {
			t.paragraph(strings.Repeat(" ", 11)+"-> ", f.Remedy, 14)
		}
	}
}

// paragraph wraps text behind what it begins with, whose last line is indent characters wide.
func (t *table) paragraph(begin, text string, indent int) {
	for _, line := range terminal.Wrap(text, t.width-indent) {
		t.line(begin + line)
		begin = strings.Repeat(" ", indent)
	}
}
