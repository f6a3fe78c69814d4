package plot

import "fmt"

// Bars are stacked bars, each as long as the others: what counts is the shares.
type Bars struct {
	Title  string
	Legend []Entry // of this panel alone
	Width  float64
	Rows   []Row
	Labels float64 // width of the names
}

// Row is a bar. The text stands behind it.
type Row struct {
	Name, Text string
	Parts      []Share
}

// Share is a part of a bar.
type Share struct {
	Colour int
	Value  float64
}

const rowHeight = 30.0

func (b Bars) size() (w, h float64) { return b.Width, 46 + rowHeight*float64(len(b.Rows)) }

func (b Bars) draw(c *canvas, left, top float64) {
	c.text(left, top+12, "panel", "start", b.Title)
	drawLegend(c, b.Legend, left, left+b.Width, top+32)
	for i, row := range b.Rows {
		y := top + 46 + rowHeight*float64(i)
		c.text(left+b.Labels-8, y+15, "note", "end", row.Name)
		total := 0.0
		for _, part := range row.Parts {
			total += part.Value
		}
		x, length := left+b.Labels, b.Width-b.Labels-80
		for _, part := range row.Parts {
			w := length * part.Value / max(total, 1e-9)
			c.rect(x, y, w, rowHeight-8, fmt.Sprintf("bar f%d", part.Colour))
			x += w
		}
		c.text(x+8, y+15, "", "start", row.Text)
	}
}
