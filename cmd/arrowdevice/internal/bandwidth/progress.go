package bandwidth

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/terminal"
)

// progress counts the steps of a measurement.
type progress struct {
	report      func(done, total int, doing string)
	done, total int
}

func (p *progress) next(d Direction, m Method, size int64) {
	if p.report != nil {
		p.report(p.done, p.total, fmt.Sprintf("%s, %s, %s", terminal.Bytes(size), d, m))
	}
	p.done++
}

// Bar draws the progress on a line of a terminal, ten times a second at most.
type Bar struct {
	w     io.Writer
	ascii bool
	width int
	last  time.Time
}

// NewBar returns a bar on w, which is width columns wide.
func NewBar(w io.Writer, width int, ascii bool) *Bar { return &Bar{w: w, ascii: ascii, width: width} }

// Show draws the bar.
func (b *Bar) Show(done, total int, doing string) {
	if now := time.Now(); now.Sub(b.last) >= 100*time.Millisecond {
		b.last = now
		fmt.Fprintf(b.w, "\r%s\x1b[K", b.line(done, total, doing))
	}
}

// Clear removes it.
func (b *Bar) Clear() {
	if !b.last.IsZero() {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

const barCells = 24

func (b *Bar) line(done, total int, doing string) string {
	full, empty := "━", "─"
	if b.ascii {
		full, empty = "#", "."
	}
	cells := barCells * done / max(1, total)
	line := fmt.Sprintf("%s%s %3d %%  %s", strings.Repeat(full, cells), strings.Repeat(empty, barCells-cells), 100*done/max(1, total), doing)
	if runes := []rune(line); len(runes) >= b.width {
		line = string(runes[:max(0, b.width-1)])
	}
	return line
}
