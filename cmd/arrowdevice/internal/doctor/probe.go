package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// message is a line that the child process prints: the step that it begins, or what it found.
type message struct {
	Step      string  `json:"step,omitempty"`
	Driver    *Driver `json:"driver,omitempty"`
	Simulated bool    `json:"simulated,omitempty"`
	Device    *Device `json:"device,omitempty"` // replaces what was known of it
	Done      bool    `json:"done,omitempty"`
}

// Probe asks the driver, and prints a message for each step and each answer. Of the GPUs it asks
// those with these ordinals, or all if there are none. It is the child process: a driver that hangs
// or crashes takes only this process with it.
func Probe(out io.Writer, gpus ...string) {
	p := &probe{to: json.NewEncoder(out), gpus: gpus}
	p.run()
	p.say(message{Done: true})
}

type probe struct {
	to        *json.Encoder
	gpus      []string
	driver    Driver
	simulated bool
}

func (p *probe) say(m message) { _ = p.to.Encode(m) }

func (p *probe) step(name string) { p.say(message{Step: name}) }

// know prints what is known of the driver.
func (p *probe) know() { p.say(message{Driver: &p.driver, Simulated: p.simulated}) }

func (p *probe) fail(call string, err error) {
	p.driver.Failure = failure(call, err)
	p.know()
}

// failure describes an error of a call of the driver.
func failure(call string, err error) *Failure {
	f := &Failure{Call: call, Text: err.Error()}
	var code cuda.Code
	if errors.As(err, &code) && code > 0 {
		f.Code = int(code)
	}
	return f
}

func (p *probe) run() {
	p.driver.Path = cuda.DefaultPath()
	p.step("load")
	library, err := cuda.Inspect("")
	if err != nil {
		p.fail("load", err)
		return
	}
	p.driver.File, p.driver.Functions = library.File, library.Functions
	p.driver.AbsentNeeded, p.driver.AbsentOptional = library.Needed, library.Optional
	// The library itself must not tell: a program that uses it holds nothing of the simulator.
	p.simulated = library.Has("cudasim_configure")
	p.know()

	p.step("cuInit")
	driver, err := cuda.Open("")
	if err != nil {
		call := "cuInit"
		if len(library.Needed) > 0 {
			call = "load"
		}
		p.fail(call, err)
		return
	}
	p.step("cuDriverGetVersion")
	if version, err := driver.Version(); err == nil {
		p.driver.CUDA = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
		p.know()
	}
	p.step("cuDeviceGetCount")
	count, err := driver.DeviceCount()
	if err != nil {
		p.fail("cuDeviceGetCount", err)
		return
	}
	for i := range count {
		if len(p.gpus) == 0 || slices.Contains(p.gpus, strconv.Itoa(i)) {
			p.device(driver, i, count)
		}
	}
}
