package metamorphic

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// census is what is alive in the process and on the machine.
type census struct {
	goroutines int
	files      int
	mappings   int
}

func takeCensus(*setting) census {
	return census{goroutines: runtime.NumGoroutine(), files: entries("/proc/self/fd"), mappings: memfds()}
}

func entries(dir string) int {
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return len(list)
}

// memfds counts mappings of files in memory.
func memfds() int {
	maps, _ := os.ReadFile("/proc/self/maps")
	return strings.Count(string(maps), "/memfd:")
}

// lives is the time in which everything of a program must be gone after its end, on an idle machine.
const lives = time.Second

// compare reports leftovers of a program that are not gone in time.
func (c census) compare(s *setting) *Failure {
	var left error
	began := time.Now()
	becomes(limit(), func() bool { left = c.left(s); return left == nil || errors.Is(left, errViolation) })
	if left != nil {
		return &Failure{Step: "after the end", Want: "nothing is left", Got: left.Error() + "\n" + stacks()}
	}
	now := time.Now()
	if allowed := lives + s.pace.Allowance(began, now); now.Sub(began) > allowed {
		return &Failure{Step: "after the end", Want: "nothing is left after " + allowed.String(), Got: "something for " + now.Sub(began).String()}
	}
	return nil
}

func (c census) left(s *setting) error {
	var errs []error
	if stats := cdevice.ReadStats(); stats != (cdevice.Stats{}) {
		errs = append(errs, fmt.Errorf("%v %v", stats, cdevice.LiveObjects()))
	}
	now := takeCensus(s)
	if now.goroutines > c.goroutines {
		errs = append(errs, fmt.Errorf("%d goroutines more", now.goroutines-c.goroutines))
	}
	if now.files > c.files {
		errs = append(errs, fmt.Errorf("%d files more", now.files-c.files))
	}
	if now.mappings > c.mappings {
		errs = append(errs, fmt.Errorf("%d mappings more", now.mappings-c.mappings))
	}
	if s.machine != nil {
		errs = append(errs, s.leftOnMachine())
	}
	return errors.Join(errs...)
}

// errViolation is what the simulator reports, which does not go away.
var errViolation = errors.New("the simulator")

func (s *setting) leftOnMachine() error {
	report := s.machine.Report()
	if len(report.Violations) > 0 {
		return fmt.Errorf("%w: %s", errViolation, strings.Join(report.Violations, "\n"))
	}
	for _, gpu := range s.gpus {
		stats := gpu.ReadStats()
		if stats.Waiting != 0 || stats.WaitingBytes != 0 || stats.Lost != 0 || stats.CallbackPanics != 0 {
			return fmt.Errorf("%v: %v", gpu.ID(), stats)
		}
	}
	if !reflect.DeepEqual(s.idle, report.Live) {
		s.trim()
		return fmt.Errorf("the simulator has %+v, and had %+v", report.Live, s.idle)
	}
	return nil
}

// watchStats reads the counts of the library again and again, until the function that it returns is called.
func watchStats() (end func() error) {
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() {
		var found error
		for !stop.Load() {
			if found == nil {
				found = belowZero(cdevice.ReadStats())
			}
			time.Sleep(20 * time.Microsecond)
		}
		done <- found
	}()
	return func() error {
		stop.Store(true)
		return <-done
	}
}

// belowZero reports counts below zero that the documentation does not allow.
func belowZero(s cdevice.Stats) error {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "ExportedArrays", "ExportedBlocks":
		default:
			if n := v.Field(i).Int(); n < 0 {
				return fmt.Errorf("%s is %d", name, n)
			}
		}
	}
	return nil
}
