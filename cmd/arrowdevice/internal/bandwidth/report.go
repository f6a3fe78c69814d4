// Package bandwidth measures how fast batches get to a GPU and back: by this library, and by the
// driver alone, which is the limit.
package bandwidth

import (
	"errors"
	"slices"
	"strings"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/text"
)

// Report is what arrowdevice bandwidth prints, and its --json. Fields are added to it and never
// renamed.
type Report struct {
	Arrowdevice string    `json:"arrowdevice"`     // the version of this module
	Simulated   bool      `json:"simulated"`       // the driver is cudasim: the figures mean nothing
	Interrupted bool      `json:"interrupted"`     // points are missing
	Error       string    `json:"error,omitempty"` // what ended the measurement, or why there was none
	CUDA        string    `json:"cuda"`            // of the driver: "12.4"
	Device      Device    `json:"device"`
	TimePerNS   int64     `json:"time_per_point_ns"`
	Points      []Point   `json:"points"`
	LeftOut     []LeftOut `json:"left_out"`
	Summary     []Summary `json:"summary"`
}

// Device is the GPU.
type Device struct {
	Ordinal int64  `json:"ordinal"`
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
}

// Direction is where the bytes go.
type Direction string

// The directions.
const (
	ToDevice Direction = "host_to_device"
	ToHost   Direction = "device_to_host"
)

var directions = []Direction{ToDevice, ToHost}

// String returns the direction for people.
func (d Direction) String() string {
	if d == ToDevice {
		return "host -> device"
	}
	return "device -> host"
}

// Method is how they are copied.
type Method string

// The methods. The host's memory is Go's or pageable, if it is not called pinned. It has been used before, but for that of
// Ours to the host: CopyToHost allocates it for each copy, and the system provides its pages.
const (
	Plain      Method = "plain"       // cuMemcpy, between pageable memory and the GPU
	Pinned     Method = "pinned"      // one cuMemcpyAsync, between pinned memory and the GPU
	Ours       Method = "ours"        // CopyToDevice, CopyToHost
	OursReused Method = "ours_reused" // CopyToHost, into memory that has been used before, as that of Plain
	OursPinned Method = "ours_pinned" // as Ours, where the record batch is in pinned memory
)

// methods returns the methods of a direction.
func (d Direction) methods() []Method {
	if d == ToDevice {
		return []Method{Plain, Pinned, Ours, OursPinned}
	}
	return []Method{Plain, Pinned, Ours, OursReused, OursPinned}
}

// String returns the method for people.
func (m Method) String() string {
	switch m {
	case Ours:
		return "ours, Go memory"
	case OursReused:
		return "ours, reused"
	case OursPinned:
		return "ours, pinned"
	}
	return string(m)
}

// Point is a measurement: copies of the same bytes, again and again.
type Point struct {
	Direction Direction `json:"direction"`
	Method    Method    `json:"method"`
	Bytes     int64     `json:"bytes"`  // of one copy
	Copies    int       `json:"copies"` // that were measured
	MedianNS  int64     `json:"median_ns"`
	FastestNS int64     `json:"fastest_ns"`
	PerSecond float64   `json:"bytes_per_second"` // at the median
}

// LeftOut is a size that was not measured.
type LeftOut struct {
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
}

// Summary is how far this library is from the driver's own copies, at one size: 1 is as fast.
type Summary struct {
	Direction          Direction `json:"direction"`
	Bytes              int64     `json:"bytes"`
	OursOfPinned       float64   `json:"ours_of_pinned"`
	OursPinnedOfPinned float64   `json:"ours_pinned_of_pinned"`
	// OursOfPlain compares copies of memory that has been used before: to the host, those of OursReused.
	OursOfPlain float64 `json:"ours_of_plain"`
}

// find returns a point, and whether it was measured.
func (r *Report) find(d Direction, m Method, bytes int64) (Point, bool) {
	i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Direction == d && p.Method == m && p.Bytes == bytes })
	if i < 0 {
		return Point{}, false
	}
	return r.Points[i], true
}

// sizes returns the sizes that were measured.
func (r *Report) sizes() (sizes []int64) {
	for _, p := range r.Points {
		if !slices.Contains(sizes, p.Bytes) {
			sizes = append(sizes, p.Bytes)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// judged is the size that the summary is about, if it was measured.
const judged = 64 << 20

// summarize compares at 64 MiB, or at the largest size.
func (r *Report) summarize() {
	r.Summary = []Summary{}
	sizes := r.sizes()
	if len(sizes) == 0 {
		return
	}
	at := sizes[len(sizes)-1]
	if slices.Contains(sizes, judged) {
		at = judged
	}
	for _, d := range directions {
		rates := map[Method]float64{}
		for _, m := range d.methods() {
			if p, ok := r.find(d, m, at); ok {
				rates[m] = p.PerSecond
			}
		}
		if len(rates) < len(d.methods()) {
			continue
		}
		used := rates[Ours]
		if d == ToHost {
			used = rates[OursReused]
		}
		r.Summary = append(r.Summary, Summary{d, at, rates[Ours] / rates[Pinned], rates[OursPinned] / rates[Pinned], used / rates[Plain]})
	}
}

// nothing is the error of a measurement without a point, of which all sizes were left out.
func (r *Report) nothing() error {
	reasons := make([]string, len(r.LeftOut))
	for i, l := range r.LeftOut {
		reasons[i] = l.Reason
	}
	return errors.New("nothing was measured: " + strings.Join(reasons, "; "))
}

// leaveOut notes a size that is not measured.
func (r *Report) leaveOut(bytes int64, reason string) {
	r.LeftOut = append(r.LeftOut, LeftOut{bytes, reason + " for " + text.Bytes(bytes)})
}
