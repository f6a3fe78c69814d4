package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Result is one row: our operation beside a peer's, measured in turns.
type Result struct {
	Operation string  `json:"operation"`
	Shape     string  `json:"shape"`
	Columns   int     `json:"columns"`
	NS        float64 `json:"ns"`     // ours, nanoseconds per operation
	CPU       float64 `json:"cpu_ns"` // ours, nanoseconds on all processors
	Allocs    float64 `json:"allocs"` // ours, Go allocations per operation
	Peer      string  `json:"peer,omitempty"`
	PeerNS    float64 `json:"peer_ns,omitempty"`
	PeerCPU   float64 `json:"peer_cpu_ns,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`     // peer_ns / ns: above 1, ours is faster
	CPURatio  float64 `json:"cpu_ratio,omitempty"` // peer_cpu_ns / cpu_ns

	turns, peerTurns turns
}

// ratio returns the ratio that counts: of processor time where a consumer has a thread, and beside arrow-go's package,
// where collections of garbage run meanwhile.
func (r Result) ratio() float64 {
	if strings.HasPrefix(r.Operation, "cdata: ") || strings.HasSuffix(r.Operation, "released on another thread") {
		return r.CPURatio
	}
	return r.Ratio
}

// report is what a run found out.
type report struct {
	Machine machine  `json:"machine"`
	Results []Result `json:"results"`
	Live    []Live   `json:"live,omitempty"`
}

// machine is where a report was made, and with which peers.
type machine struct {
	CPU    string            `json:"cpu"`
	Cores  int               `json:"cores"`
	Go     string            `json:"go"`
	Python string            `json:"python,omitempty"`
	Peers  map[string]string `json:"peers"` // versions
}

func thisMachine() machine {
	m := machine{CPU: "unknown", Cores: cores, Go: runtime.Version(), Peers: map[string]string{"cdata": cdataVersion()}}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	for _, l := range libraries {
		m.Peers[l.Name] = l.Version
	}
	return m
}

// write writes the report as JSON, an operation with all its peers a line, so that a new run is a readable change.
func (r report) write(path string) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "{\"machine\":%s,\n\"results\":[", must(json.Marshal(r.Machine)))
	for i, row := range r.Results {
		switch {
		case i == 0:
			out.WriteString("\n")
		case row.isBeside(r.Results[i-1]):
			out.WriteString(",")
		default:
			out.WriteString(",\n")
		}
		out.Write(must(json.Marshal(row.rounded())))
	}
	out.WriteString("],\n\"live\":[")
	for i, l := range r.Live {
		fmt.Fprintf(&out, "%s\n%s", strings.Repeat(",", min(i, 1)), must(json.Marshal(l)))
	}
	out.WriteString("]}\n")
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// isBeside reports whether two rows are of one operation, beside different peers.
func (r Result) isBeside(other Result) bool {
	return r.Operation == other.Operation && r.Shape == other.Shape && r.Columns == other.Columns
}

// rounded returns the row with four digits of each figure: more change with every run.
func (r Result) rounded() Result {
	for _, v := range []*float64{&r.NS, &r.CPU, &r.Allocs, &r.PeerNS, &r.PeerCPU, &r.Ratio, &r.CPURatio} {
		*v = must(strconv.ParseFloat(strconv.FormatFloat(*v, 'g', 4, 64), 64))
	}
	return r
}

func readReport(path string) (r report, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}
