package main

import (
	"encoding/json"
	"os"
	"regexp"
	"runtime"
	"slices"
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
	Ratio     float64 `json:"ratio,omitempty"` // peer_ns / ns: above 1, ours is faster

	turns, peerTurns turns
}

// report is what a run found out.
type report struct {
	Machine machine  `json:"machine"`
	Results []Result `json:"results"`
	Live    []Live   `json:"live,omitempty"`
}

// machine is where a report was made, and with which peers.
type machine struct {
	CPU   string            `json:"cpu"`
	Cores int               `json:"cores"`
	Go    string            `json:"go"`
	Peers map[string]string `json:"peers"` // versions
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

// write writes the report as JSON with one record a line, so that a new run is a readable change.
func (r report) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text = regexp.MustCompile(`[\[,]\{|,"\w+":\[`).ReplaceAllFunc(text, func(s []byte) []byte {
		return slices.Concat(s[:1], []byte("\n"), s[1:])
	})
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readReport(path string) (r report, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}
