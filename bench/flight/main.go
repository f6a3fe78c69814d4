// Command flight compares this module's client and server of Arrow Flight with arrow-go's, which copy each batch between
// the device and the host by themselves, and with PyArrow's, over loopback. With -tickets it compares tickets of package
// share with bodies.
//
//	go run ./cudasim/run -machine race=0 go run ./bench/flight
//	go run ./cudasim/run -machine race=0 go run ./bench/flight -only 'DoGet, host' -rounds 3
//
// Each side is a server and a client of its own, in two processes. The sides take turns; a ratio is the median of those of
// the turns. -json prints rows as bench/report.go has them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// The names of the other sides.
const (
	plainName   = "arrow-go's Flight"
	pyArrowName = "PyArrow's Flight"
)

var (
	rounds  = flag.Int("rounds", 9, "turns of each measurement")
	only    = flag.String("only", "", "measure the rows whose name matches this `regular expression`")
	list    = flag.Bool("list", false, "measure nothing, and print the names of the rows")
	asJSON  = flag.Bool("json", false, "print the rows as JSON")
	tickets = flag.Bool("tickets", false, "only tickets against bodies")
	python  = flag.String("python", "", "the `interpreter` that has PyArrow; none: without PyArrow")
	scale   = flag.Float64("scale", 1, "times the length of each turn")
	profile = flag.String("cpuprofile", "", "write profiles of our processes to files with this `prefix`")
	role    = flag.String("role", "", "be a process of a side (for this program itself)")
	address = flag.String("address", "", "of the server, for the client of a side")
)

func main() {
	flag.Parse()
	switch {
	case *role == "serve-tickets":
		serveTickets()
	case *role != "":
		beSide()
	case *list:
		for _, l := range loads() {
			fmt.Printf("%s, %s\n", l.operation(), l.shape())
		}
	case *tickets:
		compareTickets()
	default:
		compareAll()
	}
}

// load is what one turn moves.
type load struct {
	Put     bool `json:"put"` // DoPut, else DoGet
	GPU     bool `json:"gpu"` // both ends have the batches in memory of a GPU, else of the host
	Rows    int  `json:"rows"`
	Streams int  `json:"streams"`
	Batches int  `json:"batches"` // of each stream
}

func (l load) operation() string {
	method, place, streams := "DoGet", "host", "1 stream"
	if l.Put {
		method = "DoPut"
	}
	if l.GPU {
		place = "GPU"
	}
	if l.Streams > 1 {
		streams = fmt.Sprintf("%d streams", l.Streams)
	}
	return fmt.Sprintf("Flight: %s, %s, %s", method, place, streams)
}

func (l load) shape() string {
	switch l.Rows {
	case 10_000:
		return "10,000 rows"
	case 1_000_000:
		return "1,000,000 rows"
	}
	return fmt.Sprintf("%d rows", l.Rows)
}

// loads are all rows of the table.
func loads() (all []load) {
	sizes := []struct{ rows, batches, each int }{{10, 24_000, 800}, {10_000, 600, 12}, {1_000_000, 12, 1}} // of one stream, of each of 64
	for _, put := range []bool{false, true} {
		for _, gpu := range []bool{false, true} {
			for _, size := range sizes {
				for _, streams := range []int{1, 64} {
					batches := size.batches
					if streams > 1 {
						batches = size.each
					}
					if gpu && size.rows == 10 {
						batches /= 10 // calls of the driver take most of the time
					}
					all = append(all, load{put, gpu, size.rows, streams, max(1, int(float64(batches)**scale))})
				}
			}
		}
	}
	return all
}

// row is a row of bench/report.go.
type row struct {
	Operation string  `json:"operation"`
	Shape     string  `json:"shape"`
	Columns   int     `json:"columns"`
	NS        float64 `json:"ns"`
	CPU       float64 `json:"cpu_ns"`
	Peer      string  `json:"peer"`
	PeerNS    float64 `json:"peer_ns"`
	PeerCPU   float64 `json:"peer_cpu_ns"`
	Ratio     float64 `json:"ratio"`
	CPURatio  float64 `json:"cpu_ratio"`
}

func compareAll() {
	selected := regexp.MustCompile(*only)
	sides := startSides()
	var rows []row
	for _, l := range loads() {
		if name := l.operation() + ", " + l.shape(); selected.MatchString(name) {
			found := measure(l, sides)
			rows = append(rows, found...)
			if !*asJSON {
				printRows(found)
			}
		}
	}
	for _, s := range sides {
		s.end()
	}
	if *asJSON {
		check(json.NewEncoder(os.Stdout).Encode(rows))
	}
}

func printRows(rows []row) {
	for _, r := range rows {
		fmt.Printf("%-32s %-16s %-18s %10.0f ns %10.0f ns  %.2f, of CPU %.2f\n", r.Operation, r.Shape, r.Peer, r.NS, r.PeerNS, r.Ratio, r.CPURatio)
	}
}

// measure lets the sides take turns: the first one is ours. The first turn, which fills the caches of memory, does not count.
func measure(l load, sides []*side) (rows []row) {
	times := make([]turns, len(sides))
	for round := range *rounds + 1 {
		for i, s := range sides {
			if l.GPU && !s.gpu {
				continue
			}
			elapsed, cpu := s.turn(l)
			if round > 0 {
				times[i].elapsed = append(times[i].elapsed, elapsed/float64(l.Batches*l.Streams))
				times[i].cpu = append(times[i].cpu, cpu/float64(l.Batches*l.Streams))
			}
		}
	}
	ours := times[0]
	for i, s := range sides[1:] {
		theirs := times[i+1]
		if len(theirs.elapsed) == 0 {
			continue
		}
		rows = append(rows, row{
			Operation: l.operation(), Shape: l.shape(), Columns: columns, NS: median(ours.elapsed), CPU: median(ours.cpu),
			Peer: s.name, PeerNS: median(theirs.elapsed), PeerCPU: median(theirs.cpu),
			Ratio: median(divided(theirs.elapsed, ours.elapsed)), CPURatio: median(divided(theirs.cpu, ours.cpu)),
		})
	}
	return rows
}

// turns has the nanoseconds for a batch in each turn of a side.
type turns struct{ elapsed, cpu []float64 }

func divided(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// used is the CPU time of this process.
func used() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
