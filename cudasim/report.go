package cudasim

import (
	"encoding/json"
	"fmt"
)

// Report is everything that a machine counts. Functions are named without _v2,
// _ptsz and the like.
type Report struct {
	Calls            map[string]int `json:"calls"`            // per function, only those called
	FailedCalls      int            `json:"failed_calls"`     // that answered neither success nor CUDA_ERROR_NOT_READY
	Synchronisations int            `json:"synchronisations"` // calls that waited, or may have waited, for queued work
	Bytes            Bytes          `json:"bytes"`
	StagedBytes      int64          `json:"staged_bytes"` // of Bytes, from or to pageable host memory
	Live             Live           `json:"live"`
	PeakDeviceBytes  []int64        `json:"peak_device_bytes"` // per device
	// RefusedAddresses counts allocations that found no memory because this process has no
	// address space left (ulimit -v), which standard error says at the first one.
	RefusedAddresses int `json:"refused_addresses"`

	Leaks      []string `json:"leaks"`      // what is live, one by one: "cuMemAlloc: 4096 bytes at 0x... on device 0"
	Violations []string `json:"violations"` // what a driver would not have noticed, or only as a crash
}

// Bytes is what was copied or set by operations that are done.
type Bytes struct {
	HtoD   int64 `json:"htod"`
	DtoH   int64 `json:"dtoh"`
	DtoD   int64 `json:"dtod"`
	Peer   int64 `json:"peer"` // from one device to another
	HtoH   int64 `json:"htoh"`
	Memset int64 `json:"memset"`
}

// Live is what was made and not yet freed.
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
	PrimaryReferences []int   `json:"primary_references"` // per device
}

// Report returns what was counted so far.
func (s *Sim) Report() Report {
	var r Report
	if err := json.Unmarshal(s.report(), &r); err != nil {
		panic(fmt.Sprintf("cudasim: the report is not what this package reads: %v", err))
	}
	return r
}
