package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// round is what one round of a path has printed: see package paths.
type round struct {
	path  string
	times float64
	counts
}

// program is package paths of a tree, and the simulated driver of that tree.
type program struct{ path, driver string }

// measure runs the program by itself and under callgrind, and returns the least counts of the rounds.
func (p program) measure() (table, error) {
	rounds, err := run(exec.Command(p.path, p.driver))
	if err != nil {
		return nil, err
	}
	if err := clear(p.path + ".dumps"); err != nil {
		return nil, err
	}
	dumps := filepath.Join(p.path+".dumps", "dump")
	watched, err := run(exec.Command("valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes", "--zero-before=window_begin",
		"--dump-before=window_end", "--callgrind-out-file="+dumps, p.path, p.driver))
	if err != nil {
		return nil, err
	}
	if len(watched) != len(rounds) {
		return nil, fmt.Errorf("counts: %d rounds under callgrind, and %d without", len(watched), len(rounds))
	}
	all := table{}
	for i, r := range rounds {
		n, err := instructionsOf(fmt.Sprintf("%s.%d-01", dumps, i+1), p.path) // of thread 1
		if err != nil {
			return nil, err
		}
		r.counts[0] = math.Round(float64(n) / r.times)
		all.merge(table{r.path: r.counts})
	}
	return all, nil
}

func clear(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

func instructionsOf(dump, program string) (int64, error) {
	file, err := os.Open(dump)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return instructions(file, program)
}

// run returns the rounds that a program prints. One processor, without the interrupts of goroutines that run for long,
// takes the same course each time.
func run(cmd *exec.Cmd) (rounds []round, err error) {
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "CDEVICE_TRACE=", "CDEVICE_CUDA_DRIVER=")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("counts: %v: %w", cmd.Args, err)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		r, err := parseRound(line)
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	return rounds, nil
}

// parseRound reads the path, how many times it was done, and the counts after that of instructions.
func parseRound(line string) (r round, err error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 1+len(columns) {
		return r, fmt.Errorf("counts: a program of paths has printed %q", line)
	}
	r.path = fields[0]
	if r.times, err = strconv.ParseFloat(fields[1], 64); err != nil {
		return r, err
	}
	for i, field := range fields[2:] {
		if r.counts[i+1], err = strconv.ParseFloat(field, 64); err != nil {
			return r, err
		}
	}
	return r, nil
}

// both does two things at the same time.
func both(one, other func() error) error {
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = one() })
	errOther := other()
	wg.Wait()
	if err != nil {
		return err
	}
	return errOther
}
