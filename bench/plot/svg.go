// Package plot draws charts as SVG that is readable on light and dark pages. It knows nothing of what is drawn.
package plot

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Figure is a picture of panels, in rows of Across.
type Figure struct {
	Title, About string // About describes the picture to those who cannot see it
	Across       int
	Legend       []Entry
	Panels       []Lines
}

// Entry is a colour of a figure, from 0 on, and what it stands for.
type Entry struct {
	Name   string
	Colour int
	Dashed bool
}

const (
	width   = 900.0
	margin  = 16.0
	spacing = 20.0
)

// style has the colours for light and dark pages. Those of the series can be told apart without
// red and green, and have markers of different shapes.
const style = `
    svg { font-family: -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 12px; }
    .page { fill: #ffffff; }
    text { fill: #1f2328; }
    .title { font-weight: 600; font-size: 15px; }
    .panel { font-weight: 600; font-size: 13px; }
    .note { fill: #57606a; font-size: 11px; }
    .grid { stroke: #d0d7de; stroke-width: 0.6; fill: none; }
    .even { stroke: #57606a; stroke-width: 1.2; stroke-dasharray: 3 3; fill: none; }
    .line { fill: none; stroke-width: 2; }
    .dashed { stroke-dasharray: 6 4; }
    .s0 { stroke: #0969da; } .f0 { fill: #0969da; }
    .s1 { stroke: #bc4c00; } .f1 { fill: #bc4c00; }
    .s2 { stroke: #8250df; } .f2 { fill: #8250df; }
    .s3 { stroke: #1b7c83; } .f3 { fill: #1b7c83; }
    .s4 { stroke: #bf8700; } .f4 { fill: #bf8700; }
    .s5 { stroke: #6e7781; } .f5 { fill: #6e7781; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; }
      text { fill: #e6edf3; }
      .note { fill: #9198a1; }
      .grid { stroke: #30363d; }
      .even { stroke: #9198a1; }
      .s0 { stroke: #58a6ff; } .f0 { fill: #58a6ff; }
      .s1 { stroke: #f0883e; } .f1 { fill: #f0883e; }
      .s2 { stroke: #bc8cff; } .f2 { fill: #bc8cff; }
      .s3 { stroke: #39c5cf; } .f3 { fill: #39c5cf; }
      .s4 { stroke: #e3b341; } .f4 { fill: #e3b341; }
      .s5 { stroke: #9198a1; } .f5 { fill: #9198a1; }
    }
`

// SVG is the picture.
func (f Figure) SVG() string {
	c := &canvas{}
	y := margin + 16
	c.text(margin, y, "title", "start", f.Title)
	if len(f.Legend) > 0 {
		y = drawLegend(c, f.Legend, margin, width-margin, y+22)
	}
	y += 16
	for i := 0; i < len(f.Panels); i += f.Across {
		x, tallest := margin, 0.0
		for _, p := range f.Panels[i:min(i+f.Across, len(f.Panels))] {
			p.draw(c, x, y)
			x, tallest = x+p.Width+spacing, max(tallest, p.Height)
		}
		y += tallest + spacing
	}
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" aria-labelledby=\"title desc\">\n"+
		"  <title id=\"title\">%s</title>\n  <desc id=\"desc\">%s</desc>\n  <style>%s  </style>\n  <rect class=\"page\" width=\"%.0f\" height=\"%.0f\" rx=\"6\"/>\n",
		width, y, width, y, html.EscapeString(f.Title), html.EscapeString(f.About), style, width, y)
	return head + c.String() + "</svg>\n"
}

// drawLegend writes the entries in lines from left to right, and returns where the last line is.
func drawLegend(c *canvas, entries []Entry, left, right, y float64) float64 {
	x := left
	for _, e := range entries {
		w := 36 + 7*float64(len([]rune(e.Name)))
		if x+w > right {
			x, y = left, y+18
		}
		var line, marker path
		line.line(x, y-4, x+18, y-4)
		marker.marker(x+9, y-4, e.Colour)
		c.path(e.class(), line)
		c.path(fmt.Sprintf("f%d", e.Colour), marker)
		c.text(x+24, y, "", "start", e.Name)
		x += w
	}
	return y
}

func (e Entry) class() string {
	class := fmt.Sprintf("line s%d", e.Colour)
	if e.Dashed {
		class += " dashed"
	}
	return class
}

// canvas collects elements.
type canvas struct{ strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, "  "+format+"\n", args...) }

func (c *canvas) text(x, y float64, class, anchor, text string) {
	c.add(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, html.EscapeString(text))
}

func (c *canvas) path(class string, p path) {
	if len(p) > 0 {
		c.add(`<path class="%s" d="%s"/>`, class, strings.Join(p, ""))
	}
}

// path is what an element draws.
type path []string

// to goes on to a point, or begins there.
func (p *path) to(x, y float64) {
	command := "L"
	if len(*p) == 0 {
		command = "M"
	}
	*p = append(*p, fmt.Sprintf("%s%.1f %.1f", command, x, y))
}

func (p *path) line(x1, y1, x2, y2 float64) {
	*p = append(*p, fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x1, y1, x2, y2))
}

// marker is a shape for each colour.
func (p *path) marker(x, y float64, colour int) {
	corners := []int{12, 4, 3, 5, 6, 8}[colour]
	var shape path
	for i := range corners {
		angle := 2*math.Pi*float64(i)/float64(corners) - math.Pi/2
		shape.to(x+4.2*math.Cos(angle), y+4.2*math.Sin(angle))
	}
	*p = append(append(*p, shape...), "Z")
}
