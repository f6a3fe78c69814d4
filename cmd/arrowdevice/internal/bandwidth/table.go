package bandwidth

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/terminal"
)

// Look is how a report is printed.
type Look struct {
	Style terminal.Style
	ASCII bool
	Width int
}

// Print writes a report that has points for a person.
func (r *Report) Print(w io.Writer, look Look) {
	fmt.Fprintf(w, "arrowdevice bandwidth %s: cuda:%d %s, CUDA %s, %d ms for each point\n", r.Arrowdevice, r.Device.Ordinal, r.Device.Name, r.CUDA, r.TimePerNS/1e6)
	if r.Simulated {
		fmt.Fprintln(w, look.Style.Yellow("simulated driver: no GPU. The figures mean nothing; they only show that everything runs."))
	}
	for _, d := range directions {
		r.printDirection(w, d, look)
	}
	fmt.Fprintln(w)
	for i, m := range methods {
		line := fmt.Sprintf("%d %-16s %s", i+1, m, meaning[m])
		fmt.Fprintln(w, look.Style.Colour(i, line[:1])+line[1:])
	}
	if len(r.LeftOut) > 0 {
		fmt.Fprintln(w)
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(w, "left out: %s\n", l.Reason)
	}
	fmt.Fprintln(w)
	for _, s := range r.Summary {
		text := fmt.Sprintf("At %s, %s, ours has %.0f %% of the bandwidth of one pinned copy, and %.0f %% where the record batch is in pinned memory.",
			terminal.Bytes(s.Bytes), s.Direction, 100*s.OursOfPinned, 100*s.OursPinnedOfPinned)
		for _, line := range terminal.Wrap(text, min(look.Width, 100)) {
			fmt.Fprintln(w, look.Style.Bold(line))
		}
	}
	if r.Interrupted {
		fmt.Fprintln(w, look.Style.Yellow("Interrupted: points are missing."))
	}
}

var meaning = map[Method]string{
	Plain:      "cuMemcpy of pageable memory",
	Pinned:     "one cuMemcpyAsync of pinned memory, which is the limit",
	Ours:       "CopyToDevice and CopyToHost of a record batch in Go memory",
	OursPinned: "the same of one in pinned memory (package hostpinned)",
}

// printDirection writes the table and the plot of one direction.
func (r *Report) printDirection(w io.Writer, d Direction, look Look) {
	fmt.Fprintf(w, "\n%s\n", look.Style.Bold(fmt.Sprintf("%s, GB/s", d)))
	head := fmt.Sprintf("%10s", "")
	for _, m := range methods {
		head += fmt.Sprintf("%17s", m)
	}
	fmt.Fprintln(w, head)
	p := plot{ascii: look.ASCII, style: look.Style}
	for _, size := range r.sizes() {
		line := fmt.Sprintf("%10s", terminal.Bytes(size))
		values := make([]float64, len(methods))
		for i, m := range methods {
			measured, _ := r.find(d, m, size)
			values[i] = measured.PerSecond / 1e9
			line += fmt.Sprintf("%17s", figures(values[i]))
		}
		fmt.Fprintln(w, line)
		p.labels = append(p.labels, short(size))
		p.values = append(p.values, values)
	}
	if lines := p.draw(look.Width); lines != nil {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
}

// figures returns a number with three figures.
func figures(v float64) string {
	return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(max(v, 0.01))))), v)
}

// short returns a size for a narrow column: "64K".
func short(size int64) string {
	text := terminal.Bytes(size)
	return strings.TrimSuffix(strings.TrimSuffix(strings.ReplaceAll(text, " ", ""), "B"), "i")
}
