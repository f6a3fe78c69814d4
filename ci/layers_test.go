// Package ci holds the checks of the tree itself.
package ci

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/arrowdevice/arrowdevice/"

type pkg struct {
	ImportPath string
	Imports    []string
	CgoFiles   []string
}

// packages returns the packages of the module by their path in the tree, including those with the
// build tag gorgonia: listing them needs no CUDA.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	out := goIn(t, ".", "list", "-tags=gorgonia", "-json=ImportPath,Imports,CgoFiles", "../...")
	byPath := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		byPath[strings.TrimPrefix(p.ImportPath, module)] = p
	}
	require.Contains(t, byPath, "cdevice")
	return byPath
}

// allowed is which packages of this module a package may import; see the layers
// in ARCHITECTURE.md. Packages that are not listed are at the top: tests,
// benchmarks and examples may import anything.
var allowed = map[string][]string{
	"internal/memcopy":       {},
	"device":                 {"internal/memcopy"},
	"internal/hostcopy":      {"device", "internal/memcopy"},
	"cdevice/include":        {},
	"internal/abi":           {"cdevice/include"},
	"internal/handle":        {"internal/live"},
	"internal/excerpt":       {},
	"internal/errno":         {},
	"internal/argument":      {},
	"internal/fielderr":      {"internal/excerpt"},
	"internal/watch":         {"device"},
	"internal/keep":          {"device", "internal/watch"},
	"internal/live":          {},
	"internal/callsite":      {},
	"internal/refcount":      {"internal/fielderr", "internal/live"},
	"internal/bridge":        {"internal/abi", "internal/excerpt", "internal/handle", "internal/live"},
	"internal/schema":        {"internal/abi", "internal/argument", "internal/bridge", "internal/excerpt", "internal/fielderr", "internal/live"},
	"internal/testing/cases": {},
	"internal/testing/cpeer": {"internal/abi"},
	// Random programs, and the library that they exchange structs with: what is public, and peers, so that they run on every form of what
	// is not.
	"internal/testing/foreign": {"cdevice", "device", "internal/abi"},
	"internal/testing/metamorphic": {
		"cdata", "cdevice", "cudasim", "device", "flight", "interop/dlpack", "memory/cudaalloc", "memory/hostpinned", "share",
		"internal/testing/cases", "internal/testing/cpeer", "internal/testing/foreign", "internal/testing/heap", "internal/testing/within",
	},
	// The rooms of cdevice, each above those before it.
	"internal/layout":        {"internal/excerpt", "internal/schema"},
	"internal/tree":          {"device", "internal/abi", "internal/argument", "internal/bridge", "internal/fielderr", "internal/handle", "internal/layout", "internal/live", "internal/refcount", "internal/watch"},
	"internal/hostread":      {"device", "internal/abi", "internal/fielderr", "internal/layout", "internal/tree"},
	"internal/copyplan":      {"device", "internal/abi", "internal/argument", "internal/bridge", "internal/fielderr", "internal/hostcopy", "internal/hostread", "internal/layout", "internal/memcopy", "internal/tree", "internal/watch"},
	"internal/validate":      {"device", "internal/abi", "internal/copyplan", "internal/fielderr", "internal/hostread", "internal/layout", "internal/memcopy", "internal/tree"},
	"internal/cstruct":       {"device", "internal/abi", "internal/bridge", "internal/fielderr", "internal/layout", "internal/tree"},
	"internal/testing/trees": {"device", "internal/abi", "internal/cstruct", "internal/layout", "internal/tree"},
	"internal/importopt":     {"device", "internal/abi", "internal/cstruct", "internal/fielderr", "internal/schema", "internal/tree"},
	"internal/hostview":      {"internal/abi", "internal/bridge", "internal/cstruct", "internal/fielderr", "internal/hostread", "internal/layout", "internal/live", "internal/refcount", "internal/tree"},
	"internal/items":         {"device", "internal/bridge", "internal/fielderr", "internal/refcount", "internal/watch"},
	"cdevice": {
		"device", "internal/abi", "internal/argument", "internal/bridge", "internal/callsite", "internal/errno", "internal/excerpt", "internal/fielderr", "internal/handle", "internal/live", "internal/refcount", "internal/schema", "internal/sizeclass",
		"internal/layout", "internal/tree", "internal/hostread", "internal/copyplan", "internal/validate", "internal/cstruct", "internal/importopt", "internal/hostview", "internal/items", "internal/watch",
	},
	"cdevice/cdevicetest": {"cdevice"},
	"cdata":               {"cdevice", "device", "internal/abi", "internal/argument", "internal/cstruct", "internal/fielderr", "internal/hostread", "internal/hostview", "internal/importopt", "internal/live", "internal/schema"},

	"pyextension/internal/capi": {"internal/abi"},
	"pyextension": {
		"cdevice", "device", "internal/abi", "internal/fielderr", "internal/handle", "interop/cudaarray", "interop/dlpack", "memory/cudaalloc", "pyextension/internal/capi",
	},
	"internal/ipcmessage":   {},
	"internal/protofield":   {},
	"internal/flightdata":   {"internal/ipcmessage", "internal/protofield"},
	"internal/flightticket": {"cdevice", "device", "internal/flightdata", "share"},
	"flight":                {"cdevice", "device", "internal/argument", "internal/flightdata", "internal/flightticket", "internal/ipcmessage", "internal/layout", "internal/sizeclass", "share"},
	"internal/hostfile":     {"device", "internal/argument"},
	"share":                 {"cdevice", "device", "internal/abi", "internal/argument", "internal/hostfile", "internal/ipcmessage", "internal/layout", "internal/protofield", "internal/sizeclass"},
	"device/devicetest":     {"device"},
	"interop/dlpack":        {"cdevice", "device", "internal/abi", "internal/argument", "internal/bridge", "internal/fielderr", "internal/memcopy"},
	"interop/cudaarray":     {"cdevice", "device", "internal/argument", "internal/fielderr"},
	"interop/triton":        {"cdevice", "device", "internal/argument", "internal/excerpt", "internal/fielderr", "internal/hostfile", "internal/memcopy", "internal/protofield"},

	"internal/cuda":             {"device", "internal/callsite", "internal/keep"},
	"internal/sizeclass":        {"device"},
	"internal/gpu":              {"device", "internal/cuda", "internal/hostcopy", "internal/keep", "internal/memcopy", "internal/sizeclass"},
	"memory/cudaalloc":          {"device", "internal/argument", "internal/cuda", "internal/gpu", "internal/keep", "internal/sizeclass"},
	"memory/hostpinned":         {"device", "internal/argument", "internal/gpu", "internal/sizeclass", "memory/cudaalloc"},
	"cudasim":                   {"cudasim/internal/ledger"},
	"cudasim/cudasimtest":       {"cudasim", "memory/cudaalloc"},
	"internal/testing/nilargs":  {},
	"internal/testing/heap":     {},
	"internal/testing/within":   {},
	"internal/testing/cudatest": {"cudasim", "device", "internal/cuda", "internal/gpu", "internal/testing/heap", "internal/testing/within", "memory/cudaalloc", "memory/hostpinned"},

	"internal/testing/goroutineleak": {},
	"internal/testing/callocfail":    {},

	"memory/cudaalloc/gorgonia": {"cdevice", "device", "internal/argument", "memory/cudaalloc"},
}

// mayUseCgo are the packages that speak C; cdata, which cdevice imports for its
// C types, is arrow-go's.
var mayUseCgo = []string{"internal/abi", "internal/bridge", "internal/cuda", "internal/testing/callocfail", "internal/testing/cpeer", "internal/testing/foreign", "cudasim", "integration/golib", "bench/peers", "ci/counts/probe", "bench/python/cgo", "examples/consumer", "examples/driver", "examples/producer", "pyextension/internal/capi"}

func TestImportsFollowTheLayers(t *testing.T) {
	all := packages(t)
	for path, may := range allowed {
		p, ok := all[path]
		if !assert.True(t, ok, "package %s is gone; remove its row", path) {
			continue
		}
		for _, imported := range p.Imports {
			if own, isOurs := strings.CutPrefix(imported, module); isOurs {
				assert.Contains(t, may, own, "%s imports %s", path, own)
			}
		}
	}
}

// rooms are the packages that cdevice is made of, in the order in which a struct comes in: none imports a later one.
var rooms = []string{
	"internal/fielderr", "internal/layout", "internal/tree", "internal/hostread", "internal/copyplan", "internal/validate", "internal/cstruct", "internal/importopt", "internal/hostview", "internal/items", "cdevice",
}

func TestRoomsHaveAnOrder(t *testing.T) {
	for i, room := range rooms {
		for _, may := range allowed[room] {
			assert.Less(t, slices.Index(rooms, may), i, "%s may import %s", room, may)
		}
	}
}

func TestOnlyFewPackagesUseCgo(t *testing.T) {
	for path, p := range packages(t) {
		if len(p.CgoFiles) > 0 && !slices.Contains(mayUseCgo, path) {
			t.Errorf("%s uses cgo: %v", path, p.CgoFiles)
		}
	}
}

func TestDeviceKnowsNoArrow(t *testing.T) {
	for _, imported := range packages(t)["device"].Imports {
		assert.NotContains(t, imported, "arrow-go")
	}
}
