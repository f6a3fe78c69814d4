package bandwidth

import (
	"fmt"
	"math"
	"strings"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/terminal"
)

// plot draws groups of bars: one group for each label, in each a bar for each series.
type plot struct {
	labels []string
	values [][]float64 // by label and series
	ascii  bool
	style  terminal.Style
}

// plotHeight is the lines of the tallest bar.
const plotHeight = 10

// axis is the width of the numbers on the left, with what is behind them.
const axis = 8

// eighths are the parts of a cell that a bar fills.
var eighths = []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// draw returns the lines of the plot, and nil if it does not fit into the width.
func (p plot) draw(width int) (lines []string) {
	series := len(p.values[0])
	gap := 1
	if axis+len(p.labels)*(2*series+1) > width {
		gap = 0
	}
	group := series*(1+gap) + 2 - gap
	if axis+len(p.labels)*group > width {
		return nil
	}
	top := p.top()
	for row := plotHeight; row > 0; row-- {
		line := p.scale(row, top)
		for _, values := range p.values {
			line += p.row(values, row, top, gap)
			line += strings.Repeat(" ", group-series*(1+gap))
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	digits, names := strings.Repeat(" ", axis), strings.Repeat(" ", axis)
	for _, label := range p.labels {
		begin := len(digits)
		for s := range series {
			digits += fmt.Sprint(s+1) + strings.Repeat(" ", gap)
		}
		digits = fmt.Sprintf("%-*s", begin+group, digits)
		names += fmt.Sprintf("%-*s", group, label)
	}
	return append(lines, strings.TrimRight(digits, " "), strings.TrimRight(names, " "))
}

// top is a round number above all values.
func (p plot) top() float64 {
	largest := 0.0
	for _, values := range p.values {
		for _, v := range values {
			largest = max(largest, v)
		}
	}
	if largest <= 0 {
		return 1
	}
	for unit := math.Pow(10, math.Floor(math.Log10(largest))); ; unit *= 10 {
		for _, factor := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
			if largest <= unit*factor {
				return unit * factor
			}
		}
	}
}

// scale is the beginning of a line: numbers at the top, in the middle, and the axis.
func (p plot) scale(row int, top float64) string {
	number := ""
	if row == plotHeight || row == plotHeight/2 {
		number = fmt.Sprintf("%.3g", top*float64(row)/plotHeight)
	}
	bar := "│"
	if p.ascii {
		bar = "|"
	}
	return fmt.Sprintf("%*s %s ", axis-3, number, bar)
}

// row is one line of the bars of a group.
func (p plot) row(values []float64, row int, top float64, gap int) (line string) {
	for s, v := range values {
		cells := v / top * plotHeight
		part := int(math.Round(8 * min(1, max(0, cells-float64(row-1)))))
		if part == 0 && row == 1 && v > 0 {
			part = 1 // a bar that is there is seen
		}
		cell := eighths[part]
		if p.ascii {
			cell = map[bool]string{true: "#", false: " "}[part >= 4 || row == 1 && v > 0]
		}
		if cell != " " {
			cell = p.style.Colour(s, cell)
		}
		line += cell + strings.Repeat(" ", gap)
	}
	return line
}
