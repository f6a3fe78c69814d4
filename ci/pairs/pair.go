package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// names are the peers and the protocols, in the order of the tables. The plugin of the Python suites
// reads the same file.
var names = readNames()

//go:embed names.json
var namesJSON []byte

type peer struct {
	Name   string
	Module string // of Go
}

func readNames() (n struct {
	Protocols []string
	Peers     []peer
}) {
	if err := json.Unmarshal(namesJSON, &n); err != nil {
		panic(err)
	}
	return n
}

const (
	fromIt = "from it"
	toIt   = "to it"

	onCPU       = "CPU"
	onSimulator = "simulated GPU"
)

// pair is a peer that tests have proved to work with this module.
type pair struct {
	Peer      string   `json:"peer"`
	Version   string   `json:"version"`
	Protocol  string   `json:"protocol"`
	Direction string   `json:"direction"`
	On        string   `json:"on"`
	Tests     []string `json:"tests"` // files, or tests in Go
}

// results is what one suite has proved.
type results struct {
	Pairs []pair `json:"pairs"`
}

// suites are those of make test. Each writes its results to build/pairs, into a file of this name.
var suites = []string{"go", "cuda", "cuda-13", "archery", "python"}

// read returns the results of all suites.
func read(dir string) ([]pair, error) {
	var all []pair
	for _, suite := range suites {
		file := filepath.Join(dir, suite+".json")
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("no results of the suite %s, which make test runs: %w", suite, err)
		}
		var r results
		if err := json.Unmarshal(content, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, p := range r.Pairs {
			if err := p.check(); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if p.Version == "" {
				if p.Version, err = moduleVersion(p.Peer); err != nil {
					return nil, err
				}
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// write writes the results of one suite.
func write(dir, suite string, pairs []pair) error {
	content, err := json.MarshalIndent(results{pairs}, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, suite+".json"), append(content, '\n'), 0o666)
}

// check finds a name that the tables do not have.
func (p pair) check() error {
	switch {
	case rank(p.Peer) < 0:
		return fmt.Errorf("pair %v: no peer %q in names.json", p, p.Peer)
	case !slices.Contains(names.Protocols, p.Protocol):
		return fmt.Errorf("pair %v: no protocol %q in names.json", p, p.Protocol)
	case p.Direction != fromIt && p.Direction != toIt:
		return fmt.Errorf("pair %v: no direction %q", p, p.Direction)
	case len(p.Tests) == 0:
		return fmt.Errorf("pair %v: no tests", p)
	}
	return nil
}

// rank is the place of a peer in names.json, or -1.
func rank(name string) int {
	return slices.IndexFunc(names.Peers, func(p peer) bool { return p.Name == name })
}
