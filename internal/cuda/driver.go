package cuda

// #cgo !windows LDFLAGS: -ldl -lpthread
// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// PathVariable is the environment variable that names the driver to load instead
// of the system's.
const PathVariable = "CDEVICE_CUDA_DRIVER"

// DefaultPath is the library that is loaded when no other one is named.
func DefaultPath() string {
	if path := os.Getenv(PathVariable); path != "" {
		return path
	}
	return systemPath()
}

func systemPath() string {
	if runtime.GOOS == "windows" {
		return "nvcuda.dll"
	}
	return "libcuda.so.1"
}

// Driver is a loaded and initialised driver. There is one per path, for as long as
// the process lives.
type Driver struct {
	path  string
	table *C.cdevice_v0_cuda_driver // in C memory: read on threads that Go does not know
	// told reports whether the driver is a simulated one that asks who makes its calls.
	told bool
}

var drivers = struct {
	sync.Mutex
	byPath map[string]*loading
}{byPath: map[string]*loading{}}

// loading is a driver that is being loaded or is loaded.
type loading struct {
	sync.Mutex
	driver      *Driver
	initialised bool
	missing     error // the error if there is no driver, permanent
}

// Open loads the driver at path ("": see [DefaultPath]) and initialises it, once
// per path. An error that means "no CUDA here" wraps device.ErrNotSupported and is
// remembered: a process does not get a driver later.
func Open(path string) (*Driver, error) {
	if path == "" {
		path = DefaultPath()
	}
	drivers.Lock()
	l, ok := drivers.byPath[path]
	if !ok {
		l = new(loading)
		drivers.byPath[path] = l
	}
	drivers.Unlock()

	l.Lock()
	defer l.Unlock()
	if l.missing != nil {
		return nil, l.missing
	}
	if l.driver == nil {
		driver, err := load(path)
		if errors.Is(err, device.ErrNotSupported) {
			l.missing = err
		}
		if err != nil {
			return nil, err
		}
		l.driver = driver
	}
	if !l.initialised {
		if err := l.driver.init(); err != nil {
			return nil, err
		}
		l.initialised = true
	}
	return l.driver, nil
}

func load(path string) (*Driver, error) {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	table := (*C.cdevice_v0_cuda_driver)(C.calloc(1, C.sizeof_cdevice_v0_cuda_driver))
	if table == nil {
		return nil, fmt.Errorf("cuda: load %s: no memory for its functions: %w", path, syscall.ENOMEM)
	}
	text := make([]byte, 1024)
	var missing *C.char
	if reason := C.cdevice_v0_cuda_load(cPath, table, &missing, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text))); reason != nil {
		C.free(unsafe.Pointer(table))
		return nil, notLoaded(path, C.GoString(reason))
	}
	if missing != nil {
		isDriver := table.cuInit != nil
		C.free(unsafe.Pointer(table))
		return nil, incomplete(path, C.GoString(missing), isDriver)
	}
	return &Driver{path: path, table: table}, nil
}

func (d *Driver) init() error {
	if d.table.cudasim_keep != nil {
		keep.Watch()
	}
	d.told = C.cdevice_v0_cuda_wants_callers(d.table) != 0
	if r := C.cdevice_v0_cuda_init(d.table); r.code != 0 {
		err := d.fail("", r, 0)
		if Code(r.code) == NoDevice {
			return noDevice(err)
		}
		return err
	}
	return nil
}

// Path returns the file of the loaded library.
func (d *Driver) Path() string { return d.path }

// Version returns the version of CUDA that the driver supports: 1000*major + 10*minor.
func (d *Driver) Version() (int, error) {
	r := C.cdevice_v0_cuda_version(d.table)
	if r.code != 0 {
		return 0, d.fail("", r)
	}
	return int(r.value), nil
}

// DeviceCount returns the number of devices; ordinals are below it.
func (d *Driver) DeviceCount() (int, error) {
	r := C.cdevice_v0_cuda_device_count(d.table)
	if r.code != 0 {
		return 0, d.fail("", r)
	}
	return int(r.value), nil
}

// Device is one device of a driver, of which nothing has been retained.
type Device struct {
	driver  *Driver
	ordinal int
	handle  C.int
}

// Device returns the device with this ordinal.
func (d *Driver) Device(ordinal int) (*Device, error) {
	r := C.cdevice_v0_cuda_device_get(d.table, C.int(ordinal))
	if r.code != 0 {
		return nil, d.fail("", r, ordinal)
	}
	return &Device{d, ordinal, C.int(r.value)}, nil
}

// Driver returns the driver of the device.
func (d *Device) Driver() *Driver { return d.driver }

// Ordinal returns the number of the device among the driver's.
func (d *Device) Ordinal() int { return d.ordinal }

func (d *Device) fail(r result, args ...any) error {
	return d.driver.fail(d.String(), r, args...)
}

// String returns "cuda:0".
func (d *Device) String() string { return fmt.Sprintf("cuda:%d", d.ordinal) }

// Name returns a name for people: "NVIDIA H200".
func (d *Device) Name() (string, error) {
	buf := make([]byte, 256)
	r := C.cdevice_v0_cuda_device_name(d.driver.table, d.handle, (*C.char)(unsafe.Pointer(&buf[0])), C.int(len(buf)))
	if r.code != 0 {
		return "", d.fail(r)
	}
	return text(buf), nil
}

// UUID identifies the device across processes and machines.
func (d *Device) UUID() (id [16]byte, err error) {
	if r := C.cdevice_v0_cuda_device_uuid(d.driver.table, d.handle, (*C.uchar)(&id[0])); r.code != 0 {
		return id, d.fail(r)
	}
	return id, nil
}

// PCIBusID returns the address of the device on the bus: "0000:3b:00.0".
func (d *Device) PCIBusID() (string, error) {
	buf := make([]byte, 32)
	r := C.cdevice_v0_cuda_device_bus_id(d.driver.table, d.handle, (*C.char)(unsafe.Pointer(&buf[0])), C.int(len(buf)))
	if r.code != 0 {
		return "", d.fail(r)
	}
	return text(buf), nil
}

// TotalMemory returns the memory of the device in bytes.
func (d *Device) TotalMemory() (int64, error) {
	r := C.cdevice_v0_cuda_device_memory(d.driver.table, d.handle)
	return int64(r.value), errorOf(d, r)
}

// Attribute is a CUdevice_attribute.
type Attribute int

const (
	MultiprocessorCount     Attribute = 16
	Integrated              Attribute = 18
	ComputeMode             Attribute = 20
	ECCEnabled              Attribute = 32
	AsyncEngineCount        Attribute = 40
	UnifiedAddressing       Attribute = 41
	ComputeCapabilityMajor  Attribute = 75
	ComputeCapabilityMinor  Attribute = 76
	ManagedMemory           Attribute = 83
	PageableMemoryAccess    Attribute = 88
	ConcurrentManagedAccess Attribute = 89
	HostRegisterSupported   Attribute = 99
	UsesHostPageTables      Attribute = 100 // hardware coherency, ATS
	ReadOnlyHostRegister    Attribute = 113
	MemoryPoolsSupported    Attribute = 115
	PoolHandleTypes         Attribute = 119 // bits of CUmemAllocationHandleType
	IPCEventSupported       Attribute = 125
)

// Attribute returns one attribute.
func (d *Device) Attribute(a Attribute) (int, error) {
	r := C.cdevice_v0_cuda_device_attribute(d.driver.table, d.handle, C.int(a))
	return int(int32(r.value)), errorOf1(d, r, int(a))
}

// DefaultPoolKeeps returns the release threshold of the device's default pool, in bytes: how much
// freed memory it keeps.
func (d *Device) DefaultPoolKeeps() (uint64, error) {
	r := C.cdevice_v0_cuda_pool_default_keeps(d.driver.table, d.handle)
	return uint64(r.value), errorOf(d, r)
}

// CanAccess reports whether work on d can be given access to memory of peer.
func (d *Device) CanAccess(peer *Device) (bool, error) {
	r := C.cdevice_v0_cuda_device_can_access(d.driver.table, d.handle, peer.handle)
	return r.value != 0, errorOf1(d, r, peer.String())
}

// text is the C string at the start of buf.
func text(buf []byte) string {
	for i, b := range buf {
		if b == 0 {
			return string(buf[:i])
		}
	}
	return string(buf)
}
