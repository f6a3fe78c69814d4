package doctor

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// device examines one GPU: first without a context, then in its primary context.
func (p *probe) device(driver *cuda.Driver, ordinal, count int) {
	p.step(fmt.Sprintf("cuDeviceGet of cuda:%d", ordinal))
	d := Device{Ordinal: ordinal}
	dev, err := driver.Device(ordinal)
	if err != nil {
		d.Failure = failure("cuDeviceGet", err)
		p.say(message{Device: &d})
		return
	}
	d.identify(dev)
	d.ask(dev)
	for other := range count {
		if peer, err := driver.Device(other); err == nil && other != ordinal {
			if can, err := dev.CanAccess(peer); err == nil && can {
				d.PeerAccess = append(d.PeerAccess, other)
			}
		}
	}
	p.say(message{Device: &d})

	p.step(fmt.Sprintf("cuDevicePrimaryCtxRetain of cuda:%d", ordinal))
	ctx, err := dev.Context()
	if err != nil {
		d.Failure = failure("cuDevicePrimaryCtxRetain", err)
		p.say(message{Device: &d})
		return
	}
	p.inContext(ctx, &d)
	p.step(fmt.Sprintf("cuDevicePrimaryCtxRelease of cuda:%d", ordinal))
	if err := ctx.Release(); err != nil {
		d.Failure = failure("cuDevicePrimaryCtxRelease", err)
	}
	p.say(message{Device: &d})
}

func (d *Device) identify(dev *cuda.Device) {
	var err error
	if d.Name, err = dev.Name(); err != nil {
		d.Failure = failure("cuDeviceGetName", err)
	}
	if id, err := dev.UUID(); err == nil {
		d.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	d.PCI, _ = dev.PCIBusID()
	if d.MemoryTotal, err = dev.TotalMemory(); err != nil {
		d.Failure = failure("cuDeviceTotalMem", err)
	}
	d.MIG = strings.Contains(d.Name, " MIG ")
}

// ask asks for attributes. Drivers that are older than an attribute do not know it.
func (d *Device) ask(dev *cuda.Device) {
	number := func(a cuda.Attribute) *int {
		if n, err := dev.Attribute(a); err == nil {
			return &n
		}
		return nil
	}
	flag := func(a cuda.Attribute) *bool {
		n := number(a)
		if n == nil {
			return nil
		}
		is := *n != 0
		return &is
	}
	if major, minor := number(cuda.ComputeCapabilityMajor), number(cuda.ComputeCapabilityMinor); major != nil && minor != nil {
		d.ComputeCapability = fmt.Sprintf("%d.%d", *major, *minor)
	}
	d.Multiprocessors, d.CopyEngines = number(cuda.MultiprocessorCount), number(cuda.AsyncEngineCount)
	d.ECC, d.Integrated = flag(cuda.ECCEnabled), flag(cuda.Integrated)
	if mode := number(cuda.ComputeMode); mode != nil {
		d.ComputeMode = map[int]string{0: "default", 1: "exclusive", 2: "prohibited", 3: "exclusive process"}[*mode]
	}
	d.Pools = flag(cuda.MemoryPoolsSupported)
	if d.Pools != nil && *d.Pools {
		if handles := number(cuda.PoolHandleTypes); handles != nil {
			for bit, name := range []string{"file descriptor", "Win32", "Win32 KMT", "fabric"} {
				if *handles&(1<<bit) != 0 {
					d.PoolHandles = append(d.PoolHandles, name)
				}
			}
		}
		if keeps, err := dev.DefaultPoolKeeps(); err == nil {
			d.DefaultPoolKeeps = &keeps
		}
	}
	d.Managed, d.ConcurrentManaged = flag(cuda.ManagedMemory), flag(cuda.ConcurrentManagedAccess)
	d.PageableAccess, d.UnifiedAddressing = flag(cuda.PageableMemoryAccess), flag(cuda.UnifiedAddressing)
	d.HardwareCoherent = flag(cuda.UsesHostPageTables)
	d.IPCEvents = flag(cuda.IPCEventSupported)
}

// trial is how much memory is page-locked to see whether that works.
const trial = 1 << 20

func (p *probe) inContext(ctx *cuda.Context, d *Device) {
	on := fmt.Sprintf(" on cuda:%d", d.Ordinal)
	p.step("cuMemGetInfo" + on)
	if free, _, err := ctx.MemoryInfo(); err == nil {
		d.MemoryFree = &free
	}
	p.step("cuMemHostAlloc" + on)
	start := time.Now()
	locked, err := ctx.NewHost(trial)
	d.PageLockTime = time.Since(start).Nanoseconds()
	if err == nil {
		p.step("cuMemFreeHost" + on)
		err = ctx.FreeHost(locked)
	}
	d.PageLock = result(err)

	p.step("cuMemHostRegister" + on)
	page := uintptr(os.Getpagesize())
	pages := make([]byte, trial+page)
	at := device.Ptr((uintptr(unsafe.Pointer(unsafe.SliceData(pages))) + page - 1) &^ (page - 1))
	if err = ctx.Register(at, trial, false); err == nil {
		p.step("cuMemHostUnregister" + on)
		err = ctx.Unregister(at)
	}
	runtime.KeepAlive(pages)
	d.HostRegister = result(err)
}

func result(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}
