package cudasim

import (
	"errors"
	"fmt"
	"unsafe"
)

// What src/cudasim.h declares, in Go.

var controls = []string{
	"cudasim_configure", "cudasim_fail", "cudasim_fail_times", "cudasim_failed", "cudasim_pause", "cudasim_resume",
	"cudasim_event_hold", "cudasim_event_fire", "cudasim_calls", "cudasim_reset_counters", "cudasim_report",
	"cudasim_host_read", "cudasim_host_write", "cudasim_drain", "cudasim_forget_violations",
	"cudasim_write_report", "cudasim_shut_down",
}

func (s *Sim) configure(options string) error {
	if int32(s.call("cudasim_configure", uintptr(unsafe.Pointer(cString(options))))) != 0 {
		return fmt.Errorf("cudasim: the options %q were refused; standard error says why", options)
	}
	return nil
}

// Fail makes a driver call fail: the k-th call from now, counted from 1, of a
// function does nothing and answers result, a CUresult. The function is named
// without _v2, _ptsz and the like; "" is any function. There is one such fault
// at a time, and k = 0 takes it away.
func (s *Sim) Fail(function string, k int, result int) {
	s.call("cudasim_fail", uintptr(unsafe.Pointer(orNull(function))), uintptr(k), uintptr(result))
}

// FailTimes is [Sim.Fail] for several calls in a row, from the k-th on: a fault that lasts.
func (s *Sim) FailTimes(function string, k, times int, result int) {
	s.call("cudasim_fail_times", uintptr(unsafe.Pointer(orNull(function))), uintptr(k), uintptr(times), uintptr(result))
}

// Failed says whether the fault was met, and by a call of which function.
func (s *Sim) Failed() (function string, ok bool) {
	name := new(uintptr)
	ok = int32(s.call("cudasim_failed", uintptr(unsafe.Pointer(name)))) != 0
	return stringAt(*name), ok
}

// Pause lets no stream start another operation. What already runs is finished
// first: when Pause returns, nothing runs. Calls that wait for queued work wait
// until [Sim.Resume].
func (s *Sim) Pause() { s.call("cudasim_pause") }

// Resume ends Pause, however often that was called.
func (s *Sim) Resume() { s.call("cudasim_resume") }

// HoldEvent makes records of an event (a CUevent) complete only after
// [Sim.FireEvent]; their streams do not go on before it either.
func (s *Sim) HoldEvent(event uintptr) error {
	return s.check("hold an event", s.call("cudasim_event_hold", event))
}

// FireEvent lets the records of a held event complete. It is held no longer.
func (s *Sim) FireEvent(event uintptr) error {
	return s.check("fire an event", s.call("cudasim_event_fire", event))
}

// check makes an error of a CUresult.
func (s *Sim) check(what string, result uint64) error {
	code := int32(result)
	if code == 0 {
		return nil
	}
	name := new(uintptr)
	s.call("cuGetErrorName", uintptr(code), uintptr(unsafe.Pointer(name)))
	return fmt.Errorf("cudasim: %s: %s (%d)", what, stringAt(*name), code)
}

// Calls is how often a function was called; "" is all functions together.
func (s *Sim) Calls(function string) int {
	return int(s.call("cudasim_calls", uintptr(unsafe.Pointer(orNull(function)))))
}

// ResetCounters sets all counters back to zero. What is live stays live, and
// violations are kept.
func (s *Sim) ResetCounters() { s.call("cudasim_reset_counters") }

// HostRead declares that the host reads size bytes of page-locked, registered or
// managed memory now. The simulator does not see the host's own accesses: those
// that are declared are checked as those of copies are. Pageable memory is ignored.
func (s *Sim) HostRead(address uintptr, size int) {
	s.call("cudasim_host_read", address, uintptr(size))
}

// HostWrite declares that the host writes size bytes; see [Sim.HostRead].
func (s *Sim) HostWrite(address uintptr, size int) {
	s.call("cudasim_host_write", address, uintptr(size))
}

// Drain waits until all queued work is done, apart from work that is held back.
// Conflicting accesses are reported when they run, so a report should come after it.
func (s *Sim) Drain() { s.call("cudasim_drain") }

// ForgetViolations empties the list of violations, for a test that made some.
func (s *Sim) ForgetViolations() { s.call("cudasim_forget_violations") }

// ShutDown ends the machine: its threads end, its address space is given back, and
// every call of the driver answers CUDA_ERROR_DEINITIALIZED from then on. What is
// still allocated is gone, page-locked and managed memory included. [Load] does it at
// the end of the test.
func (s *Sim) ShutDown() { s.call("cudasim_shut_down") }

// WriteReport writes the report as Options.ReportPath asks for it, and does nothing
// without that. A Go program calls it before it returns from main or calls os.Exit:
// neither runs what C registered for the end of the process.
func (s *Sim) WriteReport() error {
	if int32(s.call("cudasim_write_report")) != 0 {
		return errors.New("cudasim: the report cannot be written; standard error names the file")
	}
	return nil
}

// report is the JSON text of cudasim_report.
func (s *Sim) report() []byte {
	size := s.call("cudasim_report", 0, 0)
	for {
		text := make([]byte, size)
		enough := s.call("cudasim_report", uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(size))
		if enough <= size { // else another thread made it longer meanwhile
			return text[:enough-1]
		}
		size = enough
	}
}

// cString returns s as C reads it.
func cString(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// orNull is cString for names where C has NULL for "any".
func orNull(s string) *byte {
	if s == "" {
		return nil
	}
	return cString(s)
}
