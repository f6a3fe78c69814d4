package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/text"
)

// Print writes the report for a person.
func (r *Report) Print(w io.Writer) {
	t := table{w}
	t.line("arrowdevice doctor " + r.Arrowdevice)
	if r.Simulated {
		t.line("simulated driver: no GPU")
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
	}
	for _, v := range r.Environment {
		t.noted(v.Name, cmp.Or(v.Value, `""`), v.Means)
	}
	t.python(r.Python)
	t.findings(r)
}

// table writes headings, and below them names and values.
type table struct{ w io.Writer }

func (t table) line(text string) { fmt.Fprintln(t.w, strings.TrimRight(text, " ")) }

func (t table) heading(text string) {
	t.line("")
	t.line(text)
}

// names is the width of the names of rows.
const names = 20

// row writes a fact; facts that are not known have no row.
func (t table) row(name, value string) {
	if value == "" {
		return
	}
	for _, line := range text.Wrap(value, text.Width-names-4) {
		t.line(fmt.Sprintf("  %-*s  %s", names, name, line))
		name = ""
	}
}

// noted writes a fact with a remark: behind it, or below it where the line would be too long.
func (t table) noted(name, value, note string) {
	if note != "" && len(value)+len(note) <= text.Width-names-6 {
		t.line(fmt.Sprintf("  %-*s  %s  %s", names, name, value, note))
		return
	}
	t.row(name, value)
	t.row("", note)
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

func (t table) driver(r *Report) {
	d := r.Driver
	t.heading("Driver")
	library := d.Path
	if d.File != "" && d.File != d.Path {
		library += " -> " + d.File
	}
	if d.File == "" && d.Functions == 0 {
		library += ": cannot be loaded"
	}
	t.row("library", library)
	t.row("version", d.Release)
	t.row("supports CUDA", d.CUDA)
	if d.Functions > 0 {
		absent := slices.Concat(d.AbsentNeeded, d.AbsentOptional)
		if len(absent) > 0 {
			t.row("functions", fmt.Sprintf("%d of %d; absent: %s", d.Functions-len(absent), d.Functions, strings.Join(absent, ", ")))
		} else {
			t.row("functions", fmt.Sprintf("all %d that this library uses", d.Functions))
		}
	}
	if d.Failure != nil && d.Failure.Call != "load" {
		t.row(d.Failure.Call, d.Failure.Text)
	}
}

func (t table) device(d Device) {
	t.heading(fmt.Sprintf("cuda:%d  %s", d.Ordinal, d.Name))
	chip := []string{d.ComputeCapability}
	for _, part := range []struct {
		n    *int
		what string
	}{{d.Multiprocessors, "multiprocessors"}, {d.CopyEngines, "copy engines"}} {
		if part.n != nil {
			chip = append(chip, fmt.Sprintf("%d %s", *part.n, part.what))
		}
	}
	t.row("compute capability", strings.Join(chip, ", "))
	memory := text.Bytes(d.MemoryTotal)
	if d.MemoryFree != nil {
		memory += ", " + text.Bytes(*d.MemoryFree) + " free"
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
	t.row("compute mode", d.ComputeMode)
	t.pools(d)
	t.tried("page-locking", d.PageLock, "1 MiB in "+time.Duration(d.PageLockTime).Round(time.Microsecond).String())
	t.tried("registering memory", d.HostRegister, "1 MiB")
	managed := yes(d.Managed)
	if managed == "yes" && d.ConcurrentManaged != nil {
		managed += map[bool]string{true: ", and the CPU may use it while the GPU works", false: ", but not by the CPU while the GPU works"}[*d.ConcurrentManaged]
	}
	t.row("managed memory", managed)
	pageable := map[string]string{"yes": "the GPU can read it", "no": "the GPU cannot read it"}[yes(d.PageableAccess)]
	if yes(d.HardwareCoherent) == "yes" {
		pageable += " and write it, by the page tables of the CPU (hardware coherency)"
	}
	t.row("pageable memory", pageable)
	t.row("unified addressing", yes(d.UnifiedAddressing))
	t.row("events over IPC", yes(d.IPCEvents))
	if d.Failure != nil {
		t.row(d.Failure.Call, d.Failure.Text)
	}
}

// tried writes how a trial went.
func (t table) tried(name, result, what string) {
	if result == "ok" {
		result += ", " + what
	}
	t.row(name, result)
}

func (t table) pools(d Device) {
	pools := yes(d.Pools)
	if pools == "yes" {
		pools += "; handles for other processes: " + cmp.Or(strings.Join(d.PoolHandles, ", "), "none")
		if d.DefaultPoolKeeps != nil {
			keeps := text.Bytes(int64(min(*d.DefaultPoolKeeps, 1<<62)))
			if *d.DefaultPoolKeeps > 1<<62 {
				keeps = "everything"
			}
			pools += "; the default pool keeps " + keeps
		}
	}
	t.row("stream-ordered pools", pools)
}

// peerAccess writes which GPU can reach the memory of which.
func (t table) peerAccess(devices []Device) {
	t.heading("Peer access")
	cells := func(name string, cell func(to Device) string) {
		var columns strings.Builder
		for _, to := range devices {
			fmt.Fprintf(&columns, "%-8s", cell(to))
		}
		t.line(fmt.Sprintf("  %-*s  %s", names, name, columns.String()))
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

func (t table) machine(m Machine) {
	t.heading("Machine")
	t.row("kernel module", cmp.Or(m.KernelModule, "none of NVIDIA"))
	t.row("GPU device files", cmp.Or(list(m.DeviceFiles), "none"))
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
			limit = "at most " + text.Bytes(*m.LockedMemory)
		}
		t.row("locked memory", limit)
	}
}

// python writes the libraries: those that are there as rows, the others as a line.
func (t table) python(p Python) {
	if p.Command == "" {
		return
	}
	t.heading(strings.TrimSpace("Python " + p.Version))
	if p.Error != "" {
		t.row(p.Command, p.Error)
		return
	}
	t.row("interpreter", p.Path)
	var absent []string
	for _, peer := range p.Peers {
		switch peer.State {
		case "absent":
			absent = append(absent, peer.Name)
		case "ok":
			t.row(peer.Name, strings.TrimSuffix(peer.Version+", "+peer.Note, ", "))
		default:
			t.row(peer.Name, peer.State+": "+peer.Error)
		}
	}
	t.row("not installed", strings.Join(absent, ", "))
}

func (t table) findings(r *Report) {
	if len(r.Findings) == 0 {
		t.heading("Nothing is wrong.")
		if r.Simulated {
			t.paragraph("", "The driver is simulated: there is no GPU, kernels do not run, and measured times mean nothing.")
		}
		return
	}
	t.heading("What is wrong, and what to do")
	for _, f := range r.Findings {
		t.paragraph(fmt.Sprintf("  %-7s  ", f.Severity), f.Problem)
		if f.Remedy != "" {
			t.paragraph(strings.Repeat(" ", 11)+"-> ", f.Remedy)
		}
	}
}

// paragraph wraps a sentence behind what it begins with.
func (t table) paragraph(begin, sentence string) {
	indent := len(begin)
	for _, line := range text.Wrap(sentence, text.Width-indent) {
		t.line(begin + line)
		begin = strings.Repeat(" ", indent)
	}
}
