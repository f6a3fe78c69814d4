package metamorphic

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Work is the work of a process: programs, or the programs of seeds.
type Work struct {
	Programs []string      // texts
	Seed     uint64        // of the first program, unless there are Programs
	Count    int           // how many seeds; 0: as many as there is time for
	For      time.Duration // how long; 0: until all is done
	Ops      int           // of a program of a seed
	Verbs    string        // a regular expression: operations of a program of a seed are those whose names match
	Worlds   string        // a regular expression: those whose names match
	Repeat   int           // how often each program runs in each world; 0: once
	// State is a file for the State of the process, which outlives a crash.
	State string
}

// State is the progress of a process.
type State struct {
	Program  string   // that runs, or has failed
	World    string   // in which it does
	Failure  *Failure // unless all went well
	Done     int      // programs
	Last     uint64   // the last seed
	Complete bool     // the process has ended by itself
}

// WorkVariable is the environment variable with a Work as JSON, which makes a test process do it.
const WorkVariable = "METAMORPHIC_WORK"

// Do does the work, and returns the state at its end.
func Do(t testing.TB, w Work) State {
	r, pipe, err := os.Pipe() // has the runtime open the files that it needs for all others
	must(err)
	must(errors.Join(r.Close(), pipe.Close()))
	pace := within.MeasurePace()
	t.Cleanup(pace.Stop)
	match := regexp.MustCompile(w.Worlds)
	var open []*setting
	for _, world := range Worlds {
		if match.MatchString(world.Name) {
			open = append(open, world.open(t, pace))
		}
	}
	began := time.Now()
	next := w.programs()
	var s State
	for w.For == 0 || time.Since(began) < w.For {
		p, ok := next()
		if !ok {
			break
		}
		s.Last = p.Seed
		if s.Failure = w.everywhere(&s, open, p); s.Failure != nil {
			break
		}
		s.Done++
	}
	s.Complete = true
	s.write(w.State)
	return s
}

// programs returns the programs, one after the other.
func (w Work) programs() (next func() (Program, bool)) {
	i, match := 0, regexp.MustCompile(w.Verbs)
	return func() (Program, bool) {
		i++
		if len(w.Programs) > 0 {
			if i > len(w.Programs) {
				return Program{}, false
			}
			p, err := Parse(w.Programs[i-1])
			must(err)
			return p, true
		}
		if w.Count > 0 && i > w.Count {
			return Program{}, false
		}
		return Generate(w.Seed+uint64(i-1), w.Ops, match), true
	}
}

// everywhere runs a program in all open worlds. Its notes must be equal in all of them.
func (w Work) everywhere(s *State, open []*setting, p Program) *Failure {
	s.Program = p.String()
	var first []string
	for i, world := range open {
		s.World = world.Name
		s.write(w.State)
		for range max(1, w.Repeat) {
			notes, f := execute(world, p)
			if f != nil {
				return f
			}
			if i == 0 {
				first = notes
			}
			if !slices.Equal(notes, first) {
				return &Failure{World: world.Name, Step: "the errors", Want: fmt.Sprintf("as in the world %q: %q", open[0].Name, first), Got: fmt.Sprintf("%q", notes)}
			}
		}
	}
	return nil
}

func (s State) write(file string) {
	if file == "" {
		return
	}
	text, err := json.Marshal(s)
	must(err)
	must(os.WriteFile(file+".new", text, 0o600))
	must(os.Rename(file+".new", file))
}
