// Speed measures, on one GPU, how far this library is from what the driver can do: whole copies, many
// small columns, allocation, the overlap of a stream with work, and latency. It is a section of the kit
// ci/gpu, and prints its lines: a goal that is missed is a line FAIL, except on the simulator, whose times
// mean nothing. Every comparison is made in turns, and told as the median of the ratios.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// bench is a GPU, through this library and through the bare driver.
type bench struct {
	ctx       context.Context
	gpu       *cudaalloc.Device
	driver    *cuda.Context // of the same GPU
	stream    uintptr       // CUstream, for the bare driver
	pinned    *hostpinned.Allocator
	simulated bool
	span      time.Duration // to measure one thing
	results   []result
}

type result struct {
	Name  string  `json:"name"`
	Ours  float64 `json:"ours_ns"`
	Other float64 `json:"other_ns"`
	Ratio float64 `json:"ratio"` // of what is told: above 1, this library is faster
	Goal  float64 `json:"goal,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`
}

func main() {
	b := &bench{ctx: context.Background(), simulated: os.Getenv("KIT_SIMULATED") != "", span: 3 * time.Second}
	if b.simulated {
		b.span = 300 * time.Millisecond
	}
	b.open()
	fmt.Printf("%s, %s\n", b.gpu.ID(), b.gpu.Name())
	b.copies()
	b.columns()
	b.allocations()
	b.latency()
	b.overlap()
	check(b.gpu.Flush(b.ctx))
	if out := os.Getenv("KIT_OUT"); out != "" {
		check(os.WriteFile(filepath.Join(out, "speed.json"), append(must(json.MarshalIndent(b.results, "", "\t")), '\n'), 0o644))
	}
}

func (b *bench) open() {
	b.gpu = must(cudaalloc.Open(0))
	b.pinned = must(hostpinned.NewAllocator(b.gpu))
	driver := must(cuda.Open(os.Getenv("CDEVICE_CUDA_DRIVER")))
	b.driver = must(must(driver.Device(0)).Context())
	b.stream = must(b.driver.NewStream(0))
}

// tell prints a result. goal is the least ratio, 0 without one.
func (b *bench) tell(name string, ours, other times, bytes int64, goal float64) {
	r := result{name, ours.median(), other.median(), median(divided(other, ours)), goal, bytes}
	b.results = append(b.results, r)
	rate := ""
	if bytes > 0 {
		rate = fmt.Sprintf(", %.1f and %.1f GB/s", float64(bytes)/r.Ours, float64(bytes)/r.Other)
	}
	text := fmt.Sprintf("%s: %s against %s%s, ratio %.2f", name, nanoseconds(r.Ours), nanoseconds(r.Other), rate, r.Ratio)
	switch {
	case goal > 0 && r.Ratio < goal && !b.simulated:
		fmt.Printf("FAIL %s, goal %.2f\n", text, goal)
	case goal > 0:
		fmt.Printf("ok %s, goal %.2f\n", text, goal)
	default:
		fmt.Println("ok " + text)
	}
}

func nanoseconds(ns float64) string { return time.Duration(ns).Round(10 * time.Nanosecond).String() }

func must[T any](v T, err error) T {
	check(err)
	return v
}

// check ends the program: a call that fails leaves nothing to measure.
func check(err error) {
	if err != nil {
		fmt.Println("FAIL speed:", err)
		os.Exit(1)
	}
}
