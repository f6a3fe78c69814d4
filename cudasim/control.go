package cudasim

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"unsafe"
)

// The functions of src/cudasim.h, in Go.

var controls = []string{
	"cudasim_configure", "cudasim_fail", "cudasim_fail_times", "cudasim_failed", "cudasim_pause", "cudasim_resume",
	"cudasim_event_hold", "cudasim_event_fire", "cudasim_calls", "cudasim_reset_counters", "cudasim_report",
	"cudasim_host_read", "cudasim_host_write", "cudasim_drain", "cudasim_forget_violations",
	"cudasim_write_report", "cudasim_shut_down", "cudasim_host_signal", "cudasim_host_wait",
	"cudasim_internal_begin", "cudasim_internal_end", "cudasim_give_back", "cudasim_publish", "cudasim_keep",
	"cudasim_act", "cudasim_cover", "cudasim_forget", "cudasim_read",
	"cudasim_hand_out", "cudasim_free_later", "cudasim_wants_callers", "cudasim_caller",
}

func (s *Sim) configure(options string) error {
	if int32(s.call("cudasim_configure", uintptr(unsafe.Pointer(cString(options))))) != 0 {
		return fmt.Errorf("cudasim: the options %q were refused; standard error says why", options)
	}
	return nil
}

// Fail makes a driver call fail: the k-th call of function from now on, counted from 1, does
// nothing and returns result, a CUresult. The function is named without _v2, _ptsz and other
// suffixes; "" is any function. A machine has at most one such fault; k = 0 removes it.
func (s *Sim) Fail(function string, k int, result int) {
	s.call("cudasim_fail", uintptr(unsafe.Pointer(orNull(function))), uintptr(k), uintptr(result))
}

// FailTimes is [Sim.Fail] for several consecutive calls, starting with the k-th.
func (s *Sim) FailTimes(function string, k, times int, result int) {
	s.call("cudasim_fail_times", uintptr(unsafe.Pointer(orNull(function))), uintptr(k), uintptr(times), uintptr(result))
}

// Failed reports whether a call has met the fault of Fail, and returns the function that was
// called.
func (s *Sim) Failed() (function string, ok bool) {
	name := new(uintptr)
	ok = int32(s.call("cudasim_failed", uintptr(unsafe.Pointer(name)))) != 0
	return stringAt(*name), ok
}

// Pause keeps all streams from starting another operation, and returns once the running ones have
// completed. Calls that wait for queued work block until [Sim.Resume]. A free that does so holds up no other thread
// meanwhile, though it would on a GPU, whose work ends by itself; nor does one that waits for an event of [Sim.HoldEvent].
func (s *Sim) Pause() { s.call("cudasim_pause") }

// Resume ends Pause, even if Pause was called several times.
func (s *Sim) Resume() { s.call("cudasim_resume") }

// HoldEvent makes records of an event (a CUevent) complete only after [Sim.FireEvent]; until then
// their streams stop at the record.
func (s *Sim) HoldEvent(event uintptr) error {
	return s.check("hold an event", s.call("cudasim_event_hold", event))
}

// FireEvent ends the hold on an event and lets its records complete.
func (s *Sim) FireEvent(event uintptr) error {
	return s.check("fire an event", s.call("cudasim_event_fire", event))
}

// check returns the error for a CUresult.
func (s *Sim) check(what string, result uint64) error {
	code := int32(result)
	if code == 0 {
		return nil
	}
	name := new(uintptr)
	s.call("cuGetErrorName", uintptr(code), uintptr(unsafe.Pointer(name)))
	return fmt.Errorf("cudasim: %s: %s (%d)", what, stringAt(*name), code)
}

// Calls returns the number of calls of a function; "" counts the calls of all functions.
func (s *Sim) Calls(function string) int {
	return int(s.call("cudasim_calls", uintptr(unsafe.Pointer(orNull(function)))))
}

// ResetCounters sets all counters to zero. Live objects and violations are kept.
func (s *Sim) ResetCounters() { s.call("cudasim_reset_counters") }

// HostRead declares that the host reads size bytes of page-locked, registered or managed memory
// now. The simulator cannot see accesses of the host: declared ones are checked like those of
// copies. Pageable memory is ignored.
func (s *Sim) HostRead(address uintptr, size int) {
	defer s.tellCaller()()
	s.call("cudasim_host_read", address, uintptr(size))
}

// HostWrite declares that the host writes size bytes; see [Sim.HostRead].
func (s *Sim) HostWrite(address uintptr, size int) {
	defer s.tellCaller()()
	s.call("cudasim_host_write", address, uintptr(size))
}

// tellCaller has violations name the caller of the function that calls it, until the returned function is
// called; see [Options].Stacks.
func (s *Sim) tellCaller() func() {
	if int32(s.call("cudasim_wants_callers")) == 0 {
		return func() {}
	}
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])
	f, _ := runtime.CallersFrames(pcs[:]).Next()
	text := fmt.Sprintf("%s (%s:%d)", f.Function, filepath.Base(f.File), f.Line)
	runtime.LockOSThread() // the text is that of the thread
	s.call("cudasim_caller", uintptr(unsafe.Pointer(cString(text))))
	return func() {
		s.call("cudasim_caller", 0)
		runtime.UnlockOSThread()
	}
}

// Drain waits until all queued work has completed, except work that is held back. Conflicting
// accesses are detected when they run, so call Drain before reading the report.
func (s *Sim) Drain() { s.call("cudasim_drain") }

// ForgetViolations empties the list of violations, for tests that cause some on purpose.
func (s *Sim) ForgetViolations() { s.call("cudasim_forget_violations") }

// ShutDown ends the machine: its threads end, its address space is unmapped, and every later call
// of the driver returns CUDA_ERROR_DEINITIALIZED. Remaining allocations are gone, including
// page-locked and managed memory. [Load] calls it at the end of the test.
func (s *Sim) ShutDown() { s.call("cudasim_shut_down") }

// WriteReport writes the report to Options.ReportPath, and does nothing if that is empty. A Go
// program calls it before it returns from main or calls os.Exit, because neither runs C's atexit
// handlers.
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
		if enough <= size { // otherwise another thread has made it longer
			return text[:enough-1]
		}
		size = enough
	}
}

// cString returns s with a final NUL.
func cString(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// orNull is cString, and NULL for "", which means "any".
func orNull(s string) *byte {
	if s == "" {
		return nil
	}
	return cString(s)
}
