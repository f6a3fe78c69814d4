package cudasim

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// driver calls functions of a loaded machine from one OS thread, on which the
// primary context of device 0 is current.
type driver struct {
	t testing.TB
	*Sim
	context uintptr
}

func newDriver(t testing.TB, s *Sim) *driver {
	runtime.LockOSThread()
	d := &driver{t: t, Sim: s}
	d.ok("cuInit", 0)
	d.ok("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(&d.context)), 0)
	d.ok("cuCtxSetCurrent", d.context)
	return d
}

func (d *driver) close() {
	d.ok("cuCtxSetCurrent", 0)
	d.ok("cuDevicePrimaryCtxRelease_v2", 0)
	runtime.UnlockOSThread()
}

//go:uintptrescapes
func (d *driver) ok(function string, args ...uintptr) {
	d.t.Helper()
	require.NoError(d.t, d.check(function, d.call(function, args...)))
}

func (d *driver) alloc(size uintptr) uintptr {
	d.t.Helper()
	memory := new(uintptr)
	d.ok("cuMemAlloc_v2", uintptr(unsafe.Pointer(memory)), size)
	return *memory
}

func (d *driver) newEvent() uintptr {
	d.t.Helper()
	event := new(uintptr)
	d.ok("cuEventCreate", uintptr(unsafe.Pointer(event)), 2)
	return *event
}

func TestOptionsString(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{}, ""},
		{Options{Devices: 2}, "devices=2"},
		{Options{NoDevices: true, Devices: 2}, "devices=0"},
		{Options{Delay: 1500 * time.Nanosecond, Random: true, Seed: 7}, "delay=2,schedule=random,seed=7"},
		{Options{PageableAsync: true, Memory: 1 << 20, HostMemory: 4096}, "pageable_async=1,memory=1048576,host_memory=4096"},
		{Options{Version: 11080, NoPools: true, NoManaged: true, NoPeer: true, NoPoison: true}, "version=11080,pools=0,managed=0,peer=0,poison=0"},
		{Options{StablePrimary: true}, "primary=stable"},
		{Options{NoConcurrentManaged: true}, "concurrent_managed_access=0"},
		{Options{Devices: 2, Coherent: 1}, "devices=2,coherent=1"},
		{Options{NoReadOnlyRegister: true}, "read_only_register=0"},
		{Options{ReportPath: "-", Missing: []string{"cuMemAllocAsync"}}, "report=-"},
	} {
		assert.Equal(t, c.want, c.options.String())
	}
}

// Every option that String writes is one that the library knows.
func TestEveryOptionIsAccepted(t *testing.T) {
	s := Load(t, Options{
		Devices: 3, Delay: time.Microsecond, Random: true, Seed: 5, PageableAsync: true,
		Memory: 1 << 20, HostMemory: 1 << 20, Version: 11080,
		NoPools: true, NoManaged: true, NoPeer: true, NoPoison: true, StablePrimary: true, NoConcurrentManaged: true,
		ReportPath: filepath.Join(t.TempDir(), "report.json"), Missing: []string{"cuMemAllocAsync"},
	})
	assert.Len(t, s.Report().PeakDeviceBytes, 3)
	assert.Zero(t, s.lib.symbol("cuMemAllocAsync"))
	assert.NotZero(t, s.lib.symbol("cuMemFreeAsync"))
}

func TestTheVersionSelectsTheLibrary(t *testing.T) {
	s := Load(t, Options{Version: 13000, Missing: []string{"cuMemSetMemPool"}})
	assert.NotZero(t, s.lib.symbol("cuMemGetMemPool"))
	assert.Zero(t, s.lib.symbol("cuMemSetMemPool"))
	assert.Zero(t, Load(t, Options{Version: 12090}).lib.symbol("cuMemGetMemPool"))
	_, err := Build("cuMemGetMemPool")
	assert.ErrorContains(t, err, "no function cuMemGetMemPool")
}

func TestBadOptionsAreRefused(t *testing.T) {
	_, err := load(t.TempDir(), Options{Devices: 17})
	assert.ErrorContains(t, err, `"devices=17"`)
}

func TestWhatIsBuiltIsKept(t *testing.T) {
	first, err := Build()
	require.NoError(t, err)
	info, err := os.Stat(first)
	require.NoError(t, err)
	again, err := Build()
	require.NoError(t, err)
	assert.Equal(t, first, again)
	later, err := os.Stat(again)
	require.NoError(t, err)
	assert.Equal(t, info.ModTime(), later.ModTime())

	a, err := Build("cuMemAllocAsync")
	require.NoError(t, err)
	b, err := Build("cuMemAllocAsync", "cuMemAllocAsync")
	require.NoError(t, err)
	assert.Equal(t, a, b)
	assert.NotEqual(t, first, a)
}

func TestOnlyFunctionsOfTheLibraryCanBeMissing(t *testing.T) {
	_, err := Build("cuNoSuchFunction")
	assert.ErrorContains(t, err, "no function cuNoSuchFunction")
	_, err = Build("cuMemAllocAsync", "cuInit -o somewhere")
	assert.ErrorContains(t, err, "no function cuInit -o somewhere")
}

func TestWithoutCompilerTheErrorSaysSo(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("CC", "")
	_, err := findCompiler()
	assert.ErrorContains(t, err, "no C compiler")
}

func TestWithoutCacheDirectoryTheTemporaryFolderIsUsed(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("TMPDIR", tmp)
	dir, err := cacheDir("name")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(dir, tmp), dir)
	assert.DirExists(t, dir)
}

// A program loads the library beside others, so it exports only the driver API and the control
// functions.
func TestLibraryExportsItsAPIOnly(t *testing.T) {
	path, err := Build()
	require.NoError(t, err)
	file, err := elf.Open(path)
	require.NoError(t, err)
	defer file.Close()
	soname, err := file.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	assert.Equal(t, []string{library}, soname)
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	exported := 0
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF || elf.ST_BIND(s.Info) == elf.STB_LOCAL { // sections, on arm64
			continue
		}
		exported++
		if !strings.HasPrefix(s.Name, "cu") {
			t.Errorf("%s is exported", s.Name)
		} else if strings.HasPrefix(s.Name, "cudasim_") {
			assert.Contains(t, controls, s.Name)
		}
	}
	assert.Greater(t, exported, 600)
}

func TestTwoMachinesKnowNothingOfEachOther(t *testing.T) {
	one, two := Load(t, Options{}), Load(t, Options{Devices: 2})
	assert.NotEqual(t, one.Path(), two.Path())
	d := newDriver(t, one)
	defer d.close()
	memory := d.alloc(4096)
	assert.Equal(t, 1, one.Calls("cuMemAlloc"))
	assert.Zero(t, two.Calls(""))
	assert.EqualValues(t, []int64{4096}, one.Report().Live.DeviceBytes)
	assert.EqualValues(t, []int64{0, 0}, two.Report().Live.DeviceBytes)
	// The thread's context is one machine's own, and so are handles and addresses.
	assert.Error(t, two.check("", two.call("cuCtxSynchronize")))
	other := newDriver(t, two)
	defer other.close()
	assert.Error(t, two.check("", two.call("cuMemFree_v2", memory)))
	one.ResetCounters()
	assert.Zero(t, one.Calls(""))
	assert.NotZero(t, two.Calls("cuInit"))
	d.ok("cuMemFree_v2", memory)
}

// Others find the same machine by its path.
func TestOpenFindsTheMachineThatIsLoaded(t *testing.T) {
	s := Load(t, Options{})
	d := newDriver(t, s)
	defer d.close()
	again, err := Open(s.Path())
	require.NoError(t, err)
	assert.Equal(t, 1, again.Calls("cuInit"))
}

func TestOpenRefusesOtherLibraries(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), library))
	assert.ErrorContains(t, err, library)
	_, err = Open("libc.so.6")
	assert.ErrorContains(t, err, "not a simulated driver")
}

// peek reads a byte as Go code does that takes device memory for its own.
func peek(address uintptr) (value byte, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return **(**byte)(unsafe.Pointer(&address)), nil
}

func TestDeviceMemoryFaultsInGo(t *testing.T) {
	d := newDriver(t, Load(t, Options{}))
	defer d.close()
	memory := d.alloc(4096)
	d.ok("cuMemsetD8_v2", memory, 7, 4096)
	for _, at := range []uintptr{0, 1, 4095} {
		_, err := peek(memory + at)
		assert.Error(t, err)
	}
	d.ok("cuMemFree_v2", memory)
	_, err := peek(memory)
	assert.Error(t, err)

	pinned := new(uintptr)
	d.ok("cuMemAllocHost_v2", uintptr(unsafe.Pointer(pinned)), 4096)
	d.ok("cuMemsetD8_v2", *pinned, 7, 4096)
	value, err := peek(*pinned)
	assert.NoError(t, err)
	assert.EqualValues(t, 7, value)
	d.ok("cuMemFreeHost", *pinned)
}

func TestPauseAndResume(t *testing.T) {
	d := newDriver(t, Load(t, Options{}))
	defer d.close()
	memory := d.alloc(64)
	const notReady = 600
	d.Pause()
	d.ok("cuMemsetD8Async", memory, 0, 64, 0)
	assert.EqualValues(t, notReady, d.call("cuStreamQuery", 0))
	d.Resume()
	d.ok("cuStreamSynchronize", 0)
	d.ok("cuMemFree_v2", memory)
}

func TestHeldEventsFireWhenTold(t *testing.T) {
	d := newDriver(t, Load(t, Options{}))
	defer d.close()
	event := d.newEvent()
	const notReady = 600
	require.NoError(t, d.HoldEvent(event))
	d.ok("cuEventRecord", event, 0)
	assert.EqualValues(t, notReady, d.call("cuEventQuery", event))
	require.NoError(t, d.FireEvent(event))
	d.ok("cuEventSynchronize", event)
	d.ok("cuEventDestroy_v2", event)
	assert.ErrorContains(t, d.HoldEvent(event), "CUDA_ERROR_INVALID_HANDLE")
	assert.ErrorContains(t, d.FireEvent(0), "CUDA_ERROR_INVALID_HANDLE")
}

func TestFaultsAreMet(t *testing.T) {
	d := newDriver(t, Load(t, Options{}))
	defer d.close()
	const outOfMemory = 2
	d.Fail("cuMemAlloc", 2, outOfMemory)
	memory := d.alloc(64)
	_, ok := d.Failed()
	assert.False(t, ok)
	assert.EqualValues(t, outOfMemory, d.call("cuMemAlloc_v2", uintptr(unsafe.Pointer(new(uintptr))), 64))
	function, ok := d.Failed()
	assert.True(t, ok)
	assert.Equal(t, "cuMemAlloc", function)

	d.Fail("", 1, 999)
	assert.EqualValues(t, 999, d.call("cuMemFree_v2", memory))
	d.Fail("", 1, 999)
	d.Fail("", 0, 0)
	d.ok("cuMemFree_v2", memory)
}

// keys are the paths of all keys of a JSON object, "calls" taken as it is.
func keys(prefix string, value any) []string {
	object, ok := value.(map[string]any)
	if !ok || prefix == ".calls" {
		return []string{prefix}
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		all = append(all, keys(prefix+"."+key, object[key])...)
	}
	return all
}

// The library's report and Report have the same keys.
func TestReportHasEveryKey(t *testing.T) {
	s := Load(t, Options{Devices: 2})
	d := newDriver(t, s)
	defer d.close()
	var theirs, ours any
	require.NoError(t, json.Unmarshal(s.report(), &theirs))
	text, err := json.Marshal(s.Report())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &ours))
	assert.Equal(t, keys("", ours), keys("", theirs))
	assert.True(t, reflect.DeepEqual(ours, theirs), "%s", text)
}

// A Go program ends without the handlers of C, so it has to ask for its report.
func TestTheReportIsWrittenOnDemand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	s := Load(t, Options{ReportPath: path})
	d := newDriver(t, s)
	defer d.close()
	memory := d.alloc(4096)
	assert.NoFileExists(t, path)
	require.NoError(t, s.WriteReport())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var r Report
	require.NoError(t, json.Unmarshal(text, &r))
	assert.EqualValues(t, []int64{4096}, r.Live.DeviceBytes)
	assert.Contains(t, string(text), "cuMemAlloc: 4096 bytes")
	d.ok("cuMemFree_v2", memory)

	assert.NoError(t, Load(t, Options{}).WriteReport(), "nothing was asked for")
	nowhere := Load(t, Options{ReportPath: filepath.Join(path, "report.json")})
	assert.ErrorContains(t, nowhere.WriteReport(), "cannot be written")
}

// recorder is a test that writes down its failures.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
	dir      string
}

func (r *recorder) Helper()          {}
func (r *recorder) TempDir() string  { return r.dir }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) end() []string {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.errors
}

func TestLeaksFailTheTest(t *testing.T) {
	r := &recorder{TB: t, dir: t.TempDir()}
	d := newDriver(t, Load(r, Options{}))
	memory, event := d.alloc(4096), d.newEvent()
	d.NoLeaks(r)
	require.Len(t, r.errors, 1)
	assert.Contains(t, r.errors[0], "3 leaked")
	assert.Contains(t, r.errors[0], fmt.Sprintf("cuMemAlloc: 4096 bytes at %#x on device 0", memory))
	assert.Contains(t, r.errors[0], "cuEventCreate")
	assert.Contains(t, r.errors[0], "cuDevicePrimaryCtxRetain")

	r.errors = nil
	d.Allow("cuDevicePrimaryCtxRetain", "cuEventCreate")
	d.NoLeaks(r)
	require.Len(t, r.errors, 1)
	assert.Contains(t, r.errors[0], "1 leaked")
	d.ok("cuMemFree_v2", memory)
	d.ok("cuEventDestroy_v2", event)
	leaked := d.alloc(64)
	d.close() // takes the memory along
	assert.NotZero(t, leaked)
	r.errors = nil
	assert.Empty(t, r.end())
}

// Each violation is a paragraph, with a count where it was repeated. It names the lines of the host's accesses.
func TestViolationsAreParagraphs(t *testing.T) {
	r := &recorder{TB: t, dir: t.TempDir()}
	d := newDriver(t, Load(r, Options{Stacks: true}))
	defer runtime.UnlockOSThread()
	d.Allow("cuDevicePrimaryCtxRetain", "cuMemHostAlloc")
	memory := new(uintptr)
	d.ok("cuMemHostAlloc", uintptr(unsafe.Pointer(memory)), 4096, 0)
	for range 3 {
		d.ok("cuMemsetD8Async", *memory, 1, 4096, perThreadStream)
		d.HostRead(*memory, 4096)
		d.ok("cuCtxSynchronize")
	}
	d.ok("cuMemsetD8Async", *memory, 1, 4096, perThreadStream)
	d.HostRead(*memory, 4096)
	d.ok("cuCtxSynchronize")
	errors := r.end()
	require.Len(t, errors, 1)
	paragraphs := strings.Split(errors[0], "\n\n")
	require.Len(t, paragraphs, 3)
	assert.Equal(t, "cudasim: 2 rules violated:", paragraphs[0])
	for i, p := range paragraphs[1:] {
		lines := strings.Split(p, "\n\t\t")
		if i == 0 {
			require.Len(t, lines, 4)
			assert.Equal(t, "3 times", strings.TrimSuffix(lines[3], ";"))
		} else {
			require.Len(t, lines, 3)
		}
		assert.Contains(t, lines[0], "\tcudasim_host_read by the host reads ")
		assert.Contains(t, lines[1], "the earlier was queued at ")
		assert.Regexp(t, `^the later at .*\.TestViolationsAreParagraphs \(cudasim_test\.go:\d+\);?$`, lines[2])
	}
}

// A test that leaks fails by itself, and its machine is shut down all the same.
func TestTheEndOfTheTestLooksForLeaks(t *testing.T) {
	r := &recorder{TB: t, dir: t.TempDir()}
	d := newDriver(t, Load(r, Options{}))
	defer runtime.UnlockOSThread()
	d.alloc(4096)
	errors := r.end()
	require.Len(t, errors, 1)
	assert.Contains(t, errors[0], "2 leaked")
	assert.EqualValues(t, deinitialized, d.call("cuCtxSynchronize"))
	assert.Len(t, d.Report().Leaks, 2, "the report stays")
}

const deinitialized = 4 // CUDA_ERROR_DEINITIALIZED

const perThreadStream = 2 // CU_STREAM_PER_THREAD

// A process has room for as many machines as it likes, one after another.
func TestHundredsOfMachines(t *testing.T) {
	before := addressSpace(t)
	for range 300 {
		r := &recorder{TB: t, dir: t.TempDir()}
		d := newDriver(t, Load(r, Options{Devices: 2}))
		stream := new(uintptr)
		d.ok("cuStreamCreate", uintptr(unsafe.Pointer(stream)), 1)
		small, large := d.alloc(1000), d.alloc(64<<20)
		for _, memory := range []uintptr{small, large} {
			d.ok("cuMemsetD8Async", memory, 7, 1000, *stream)
		}
		d.ok("cuStreamSynchronize", *stream)
		d.ok("cuMemFree_v2", small)
		d.ok("cuMemFree_v2", large)
		d.ok("cuStreamDestroy_v2", *stream)
		d.close()
		require.Empty(t, r.end())
		os.Remove(d.Path())
	}
	emulated.Skip(t, emulated.AddressSpaceIsGivenBack)
	// Only the library itself remains of each.
	assert.Less(t, (addressSpace(t)-before)/300, int64(2<<20))
}

// addressSpace is the size of this process.
func addressSpace(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var pages int64
	_, err = fmt.Sscan(string(text), &pages)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

func TestViolationsFailTheTest(t *testing.T) {
	r := &recorder{TB: t, dir: t.TempDir()}
	d := newDriver(t, Load(r, Options{}))
	// Freed on a stream that does not wait for the work that is queued.
	streams := [2]uintptr{}
	memory := new(uintptr)
	for i := range streams {
		d.ok("cuStreamCreate", uintptr(unsafe.Pointer(&streams[i])), 1)
	}
	held := d.newEvent()
	require.NoError(t, d.HoldEvent(held))
	d.ok("cuMemAllocAsync", uintptr(unsafe.Pointer(memory)), 4096, streams[0])
	d.ok("cuStreamSynchronize", streams[0])
	d.ok("cuEventRecord", held, streams[0])
	d.ok("cuMemsetD8Async", *memory, 0, 4096, streams[0])
	d.ok("cuMemFreeAsync", *memory, streams[1])
	d.ok("cuStreamSynchronize", streams[1])
	require.NoError(t, d.FireEvent(held))
	const illegalAddress = 700
	assert.EqualValues(t, illegalAddress, d.call("cuStreamSynchronize", streams[0]))
	d.close() // destroys the objects of the context
	errors := r.end()
	require.Len(t, errors, 1)
	assert.Contains(t, errors[0], "rules violated")
}

func TestConcurrentManagedAccess(t *testing.T) {
	const attribute, invalidDevice = 89, 101
	for _, none := range []bool{false, true} {
		d := newDriver(t, Load(t, Options{NoConcurrentManaged: none}))
		value, memory := new(int32), new(uintptr)
		d.ok("cuDeviceGetAttribute", uintptr(unsafe.Pointer(value)), attribute, 0)
		d.ok("cuMemAllocManaged", uintptr(unsafe.Pointer(memory)), 64, 1)
		prefetched := d.call("cuMemPrefetchAsync", *memory, 64, 0, 0)
		if none {
			assert.Zero(t, *value)
			assert.EqualValues(t, invalidDevice, prefetched)
		} else {
			assert.EqualValues(t, 1, *value)
			assert.Zero(t, prefetched)
		}
		d.ok("cuMemFree_v2", *memory)
		d.close()
	}
}
