package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cudasim/internal/ledger"
)

func TestSummary(t *testing.T) {
	const at, elsewhere = ", made at main.load (load.go:14)", ", made at main.store (store.go:3)"
	assert.Equal(t, []string{
		"cuMemAlloc: 3 leaks of 64 to 4096 bytes on device 0" + at,
		"cuMemAlloc: 64 bytes at 0x4 on device 0" + elsewhere,
		"cuEventCreate: 2 leaks on device 1",
		"cuMemAlloc: 64 bytes at 0x7 on device 1" + at,
		"cuMemAllocHost: 2 leaks of 8 bytes on device 0",
		"cuDevicePrimaryCtxRetain: 1 references to device 0",
	}, ledger.Summary([]string{
		"cuMemAlloc: 4096 bytes at 0x1 on device 0" + at,
		"cuMemAlloc: 64 bytes at 0x2 on device 0" + at,
		"cuMemAlloc: 64 bytes at 0x4 on device 0" + elsewhere,
		"cuEventCreate: 0x5 on device 1",
		"cuEventCreate: 0x6 on device 1",
		"cuMemAlloc: 64 bytes at 0x7 on device 1" + at,
		"cuMemAllocHost: 8 bytes at 0x8 on device 0",
		"cuMemAllocHost: 8 bytes at 0x9 on device 0",
		"cuDevicePrimaryCtxRetain: 1 references to device 0",
		"cuMemAlloc: 256 bytes at 0x3 on device 0" + at,
	}))
	assert.Equal(t, []string{
		"cuMemAlloc: 12 leaks on device 0" + at,
		"cuMemAlloc: 64 bytes at 0x4 on device 0" + elsewhere,
		"cuEventCreate: 1 leak on device 1",
		"3 leaks more",
	}, ledger.Summary([]string{
		"cuMemAlloc: 64 bytes at 0x2 on device 0" + at,
		"cuMemAlloc: 64 bytes at 0x4 on device 0" + elsewhere,
	}, ledger.More{Text: "cuMemAlloc: 8 bytes at 0x6 on device 0" + at, Count: 11},
		ledger.More{Text: "cuEventCreate: 0x5 on device 1", Count: 1}, ledger.More{Count: 3}))
	assert.Empty(t, ledger.Summary(nil))
}
