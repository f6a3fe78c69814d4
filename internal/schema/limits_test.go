package schema

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// shared is a struct whose children are the same struct twice, and so on: levels+1 structs that
// are 2^levels to visit. The innermost has the format.
func shared(levels int, format string, share func(s, below *abi.ArrowSchema)) *abi.ArrowSchema {
	s := mirror(&abi.ArrowSchema{Format: cString(format), Name: cString("leaf")})
	for range levels {
		above := mirror(&abi.ArrowSchema{Format: cString("+s")})
		share(above, s)
		s = above
	}
	return s
}

func twice(s, below *abi.ArrowSchema) { s.NChildren, s.Children = 2, pointers(below, below) }

// twiceAndDictionary shares through dictionaries, too.
func twiceAndDictionary(s, below *abi.ArrowSchema) {
	d := mirror(&abi.ArrowSchema{Format: cString("i"), Dictionary: addressOf(below)})
	s.NChildren, s.Children = 2, pointers(d, d)
}

func TestSharedChildrenAreRefusedAtOnce(t *testing.T) {
	for name, row := range map[string]struct {
		root *abi.ArrowSchema
		want string
	}{
		"children":     {shared(60, "i", twice), `....children[1].n_children = 2, want at most 1048576 structs in the tree: invalid`},
		"dictionaries": {shared(30, "i", twiceAndDictionary), `..., want at most 1048576 structs in the tree: invalid`},
	} {
		for kind, read := range map[string]func(*abi.ArrowSchema) error{
			"schema": func(s *abi.ArrowSchema) error { _, err := ImportSchema(s); return err },
			"field":  func(s *abi.ArrowSchema) error { _, err := Import(s); return err },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				calls := countReleases(t, func(*abi.ArrowSchema) {})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := read(row.root) // to visit all of them would take hours
				runtime.ReadMemStats(&after)
				checkError(t, err, "import", row.want)
				if !underASan {
					assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes for 61 structs")
				}
				assert.Equal(t, 1, *calls, "calls of release")
			})
		}
	}
}

// The structs of a tree that is not too large are all read.
func TestTreesUpToTheLimitAreRead(t *testing.T) {
	countReleases(t, func(*abi.ArrowSchema) {})
	f, err := Import(shared(15, "i", twice)) // 65535 structs
	require.NoError(t, err)
	assert.Equal(t, 2, f.Type.(*arrow.StructType).NumFields())
}

// refusing registers an extension type whose Deserialize fails with the text.
func refusing(t *testing.T, name, text string) {
	t.Helper()
	err := arrow.RegisterExtensionType(&testType{name: name, rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return nil, errors.New(text)
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = arrow.UnregisterExtensionType(name) })
}

func addressOf(s *abi.ArrowSchema) uintptr { return heap.Address(s) }

// What an error quotes is short, however long the input is.
func TestErrorsQuoteLittle(t *testing.T) {
	long := strings.Repeat("ä", 1_000_000) // of 2 MB
	refusing(t, "test.refused", long)
	refusing(t, long[:60_000], "no")
	withExtension := func(name string) func(s *abi.ArrowSchema) {
		return func(s *abi.ArrowSchema) {
			s.Metadata = cBytes(pairs{[]string{extensionName}, []string{name}}.appendTo(nil))
		}
	}
	for name, corrupt := range map[string]func(s *abi.ArrowSchema){
		"format":                  func(s *abi.ArrowSchema) { s.Format = cString(long) },
		"format of a union":       func(s *abi.ArrowSchema) { s.Format = cString("+us:" + long) },
		"format of a time zone":   func(s *abi.ArrowSchema) { s.Format, s.NChildren = cString("tss:"+long), 3 },
		"zone that is not UTF-8":  func(s *abi.ArrowSchema) { s.Format = cString("tss:" + long + "\xff") },
		"format of odd bytes":     func(s *abi.ArrowSchema) { s.Format = cString(strings.Repeat("\x01", 1e6)) },
		"name that is not UTF-8":  func(s *abi.ArrowSchema) { s.Name = cString(long + "\xff") },
		"text of an extension":    withExtension("test.refused"),
		"name of an extension":    withExtension(long[:60_000]),
		"dictionary of a string":  func(s *abi.ArrowSchema) { s.Format, s.Dictionary = cString("tss:"+long), addressOf(s) },
		"a name without an end":   func(s *abi.ArrowSchema) { s.Name = cBytes([]byte(strings.Repeat("x", maxText+1))) },
		"a key as long as memory": withMetadata(int32Bytes(1, maxText)),
	} {
		t.Run(name, func(t *testing.T) {
			s := mirror(&abi.ArrowSchema{Format: cString("n"), Name: cString("x")})
			corrupt(s)
			countReleases(t, func(*abi.ArrowSchema) {})
			_, err := Import(s)
			require.Error(t, err)
			assert.LessOrEqual(t, len(err.Error()), 1500, "%.1000s", err)
			assert.True(t, errors.Is(err, arrow.ErrInvalid) || errors.Is(err, arrow.ErrNotImplemented), "%.1000s", err)
		})
	}
}
