package findings

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMerge(t *testing.T) {
	leak := func(call, size, at string) string { return call + ": " + size + " bytes at " + at + " on device 0" }
	assert.Equal(t, []string{
		"3 times, the first: cuMemAlloc: 16 bytes at 0x7f00 on device 0",
		"cuMemAlloc: 16 bytes at 0x7f00 on device 1",
		"cuEventCreate: 0xa0 on device 0",
	}, Merge([]string{
		leak("cuMemAlloc", "16", "0x7f00"), "cuMemAlloc: 16 bytes at 0x7f00 on device 1", leak("cuMemAlloc", "32", "0x8f00"),
		"cuEventCreate: 0xa0 on device 0", leak("cuMemAlloc", "16", "0x9f00"),
	}))
	assert.Empty(t, Merge(nil))
}

func TestRemedy(t *testing.T) {
	const (
		user    = "example.com/app.Sum (sum.go:30), in memory/cudaalloc.(*Device).Copy"
		library = "example.com/app.load (load.go:14), in cdevice.CopyToDevice"
	)
	of := func(call, earlier, later string) string {
		return Remedy(call + " in stream 2 of GPU 0 reads memory that cuMemsetD8Async in stream 3 of GPU 0 writes, and is not ordered after it: record an event; the earlier was queued at " +
			earlier + "; the later at " + later)
	}
	assert.Contains(t, of("cuMemcpyAsync", library, user), "batch.WaitOn(stream)")
	assert.Contains(t, of("cuMemcpyAsync", user, library), "batch.WithEvent(stream)")
	assert.Contains(t, of("cuMemcpyAsync", "producer", library), "the producer sets sync_event")
	assert.Contains(t, of("cuMemcpyAsync", "producer", user), "or the producer has set no sync_event")
	assert.Contains(t, of("cuMemFreeAsync", user, library), "batch.UsedOn(stream)")
	assert.Contains(t, of("cuMemFreeAsync", user, user), "m.Free(stream)")
	assert.Empty(t, of("cuMemcpyAsync", user, user), "work of the program's own, on two of its streams")
	assert.Empty(t, of("cuMemFreeAsync", "program.test()", "program.test()"), "no Go")
	assert.Empty(t, Remedy("cuMemsetD8Async touched memory at 0x7f, after it was freed"))
	assert.Contains(t, Merge([]string{"a", "a"})[0], "2 times")
}
