package cudasim

import (
	"encoding/json"
	"fmt"
)

// Report has all counters of a machine. Functions are named without _v2, _ptsz and other suffixes.
type Report struct {
	Calls            map[string]int `json:"calls"`            // per function that was called
	FailedCalls      int            `json:"failed_calls"`     // with a result other than success and CUDA_ERROR_NOT_READY
	Synchronisations int            `json:"synchronisations"` // calls that waited for queued work, or may have
	Bytes            Bytes          `json:"bytes"`
	StagedBytes      int64          `json:"staged_bytes"` // part of Bytes: from or to pageable host memory
	Live             Live           `json:"live"`
	PeakDeviceBytes  []int64        `json:"peak_device_bytes"` // per device
	// RefusedAddresses counts allocations that failed because the process has no address space left
	// (ulimit -v). The first one also prints a message on standard error.
	RefusedAddresses int `json:"refused_addresses"`

	Leaks []string `json:"leaks"` // the live objects: "cuMemAlloc: 4096 bytes at 0x... on device 0, made at main.load (load.go:14)"
	Kept  []string `json:"kept"`  // live objects that a library keeps in a cache of its own: no leaks
	// Violations are errors that a driver would not have noticed, or only as a crash: one of each kind, whose text ends in
	// "; 37 times" if there were several. Those of one kind are made at the same lines.
	Violations []string `json:"violations"`
}

// Bytes counts the bytes that completed operations have copied or set.
type Bytes struct {
	HtoD   int64 `json:"htod"`
	DtoH   int64 `json:"dtoh"`
	DtoD   int64 `json:"dtod"`
	Peer   int64 `json:"peer"` // between devices
	HtoH   int64 `json:"htoh"`
	Memset int64 `json:"memset"`
}

// Live counts the objects that were created and not yet freed.
type Live struct {
	DeviceBytes       []int64 `json:"device_bytes"` // per device
	ManagedBytes      int64   `json:"managed_bytes"`
	HostBytes         int64   `json:"host_bytes"`       // page-locked by allocation
	RegisteredBytes   int64   `json:"registered_bytes"` // page-locked by registration
	Allocations       int     `json:"allocations"`
	Pools             int     `json:"pools"`
	Streams           int     `json:"streams"`
	Events            int     `json:"events"`
	Contexts          int     `json:"contexts"`
	Graphs            int     `json:"graphs"`
	ExecutableGraphs  int     `json:"executable_graphs"`
	PrimaryReferences []int   `json:"primary_references"` // per device
}

// Report returns the current counters.
func (s *Sim) Report() Report {
	var r Report
	if err := json.Unmarshal(s.report(), &r); err != nil {
		panic(fmt.Sprintf("cudasim: the report is not what this package reads: %v", err))
	}
	return r
}
