package bandwidth

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/text"
)

// Print writes a report that has points for a person.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "arrowdevice bandwidth %s: cuda:%d %s, CUDA %s, %d ms for each point\n", r.Arrowdevice, r.Device.Ordinal, r.Device.Name, r.CUDA, r.TimePerNS/1e6)
	if r.Simulated {
		fmt.Fprintln(w, "simulated driver: no GPU. The figures mean nothing; they only show that everything runs.")
	}
	for _, d := range directions {
		r.printDirection(w, d)
	}
	fmt.Fprintln(w)
	for _, m := range ToHost.methods() {
		fmt.Fprintf(w, "%-16s %s\n", m, meaning[m])
	}
	if len(r.LeftOut) > 0 {
		fmt.Fprintln(w)
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(w, "left out: %s\n", l.Reason)
	}
	fmt.Fprintln(w)
	for _, s := range r.Summary {
		sentence := fmt.Sprintf("At %s, %s, ours has %.0f %% of the bandwidth of one pinned copy, and %.0f %% where the record batch is in pinned memory. Beside plain copies, with memory that has been used before, it has %.0f %%.",
			text.Bytes(s.Bytes), s.Direction, 100*s.OursOfPinned, 100*s.OursPinnedOfPinned, 100*s.OursOfPlain)
		fmt.Fprintln(w, strings.Join(text.Wrap(sentence, text.Width), "\n"))
	}
	if r.Interrupted {
		fmt.Fprintln(w, "Interrupted: points are missing.")
	}
}

var meaning = map[Method]string{
	Plain:      "cuMemcpy of pageable memory that has been used before",
	Pinned:     "one cuMemcpyAsync of pinned memory, which is the limit",
	Ours:       "CopyToDevice of a record batch in Go memory, CopyToHost into fresh one",
	OursReused: "CopyToHost into memory that has been used before",
	OursPinned: "both of a record batch in pinned memory (package hostpinned)",
}

// printDirection writes the table of one direction.
func (r *Report) printDirection(w io.Writer, d Direction) {
	fmt.Fprintf(w, "\n%s, GB/s\n%10s", d, "")
	for _, m := range d.methods() {
		fmt.Fprintf(w, "%17s", m)
	}
	fmt.Fprintln(w)
	for _, size := range r.sizes() {
		fmt.Fprintf(w, "%10s", text.Bytes(size))
		for _, m := range d.methods() {
			measured, _ := r.find(d, m, size)
			fmt.Fprintf(w, "%17s", figures(measured.PerSecond/1e9))
		}
		fmt.Fprintln(w)
	}
}

// figures returns a number with three figures.
func figures(v float64) string {
	return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(max(v, 0.01))))), v)
}
