package plot

import (
	"fmt"
	"math"
)

// Lines is a chart of series over an axis of a few values.
type Lines struct {
	Title, XLabel, YLabel string
	Width, Height         float64
	X                     []float64 // the ticks
	LogX, LogY            bool
	Even                  float64 // a horizontal line of this value, such as a ratio of 1; 0 for none
	Diagonal              bool    // a line where y is x
	Series                []Series
}

// Series is one line.
type Series struct {
	Entry
	Points [][2]float64 // x and y
}

// axis maps values to positions.
type axis struct {
	low, high float64
	log       bool
	from, to  float64
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

func (l Lines) draw(c *canvas, left, top float64) {
	c.text(left, top+12, "panel", "start", l.Title)
	x := axis{l.X[0], l.X[len(l.X)-1], l.LogX, left + 44, left + l.Width - 8}
	low, high := l.bounds()
	y := axis{low, high, l.LogY, top + l.Height - 36, top + 34}
	c.text(left, top+27, "note", "start", l.YLabel)
	c.text((x.from+x.to)/2, top+l.Height-4, "note", "middle", l.XLabel)
	var grid, even path
	for _, v := range l.X {
		grid.line(x.at(v), y.from, x.at(v), y.to)
		c.text(x.at(v), y.from+15, "note", "middle", short(v))
	}
	for _, v := range ticks(low, high, l.LogY) {
		grid.line(x.from, y.at(v), x.to, y.at(v))
		c.text(x.from-6, y.at(v)+4, "note", "end", short(v))
	}
	c.path("grid", grid)
	if l.Even >= low && l.Even <= high && l.Even != 0 {
		even.line(x.from, y.at(l.Even), x.to, y.at(l.Even))
	}
	if l.Diagonal {
		end := min(x.high, y.high)
		even.line(x.at(x.low), y.at(x.low), x.at(end), y.at(end))
	}
	c.path("even", even)
	for _, s := range l.Series {
		var line, markers path
		for _, p := range s.Points {
			line.to(x.at(p[0]), y.at(p[1]))
			markers.marker(x.at(p[0]), y.at(p[1]), s.Colour)
		}
		c.path(s.class(), line)
		c.path(fmt.Sprintf("f%d", s.Colour), markers)
	}
}

// bounds are the lowest and the highest value of the vertical axis, on round numbers.
func (l Lines) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range l.Series {
		for _, p := range s.Points {
			low, high = min(low, p[1]), max(high, p[1])
		}
	}
	if l.Even != 0 {
		low, high = min(low, l.Even), max(high, l.Even)
	}
	if !l.LogY {
		return 0, math.Ceil(high)
	}
	from, to := 0, len(steps)-1
	for from+1 < len(steps) && steps[from+1] <= low {
		from++
	}
	for to > from+1 && steps[to-1] >= high {
		to--
	}
	return steps[from], steps[to]
}

// steps are the round numbers of a logarithmic axis.
var steps = func() (all []float64) {
	for e := -3; e <= 9; e++ {
		for _, m := range []float64{1, 2, 5} {
			all = append(all, m*math.Pow10(e))
		}
	}
	return all
}()

func ticks(low, high float64, log bool) (all []float64) {
	if !log {
		for v := low; v <= high; v += max(1, math.Ceil(high/10)) {
			all = append(all, v)
		}
		return all
	}
	for i, v := range steps {
		if v >= low*0.999 && v <= high*1.001 && (high/low < 200 || i%3 == 0) {
			all = append(all, v)
		}
	}
	return all
}

// short is a number for an axis.
func short(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.4gk", v/1000)
	}
	return fmt.Sprintf("%.3g", v)
}
