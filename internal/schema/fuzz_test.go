package schema

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// metadataMemory is longer than a reader may walk: what a fuzzer puts at its
// front cannot lead out of it.
var metadataMemory []byte

// FuzzImport reads a root with up to 4 children, and what it accepted it exports
// and reads again.
func FuzzImport(f *testing.F) {
	for _, c := range bad {
		s := garbage()
		if err := Export(c.base, s); err != nil {
			f.Fatal(err)
		}
		was := take(s)
		c.corrupt(s)
		if s.Format != 0 {
			f.Add(abi.String(s.Format), "x", []byte(nil), s.Flags, s.NChildren, "i", s.Dictionary != 0)
		}
		was.restore()
		bridge.CallSchemaRelease(s)
	}
	for _, c := range types {
		var p plan
		if err := p.export(&arrow.Field{Type: c.dt}); err != nil {
			f.Fatal(err)
		}
		root, below := p.nodes[0], "+s"
		if len(p.nodes) > 1 {
			below = p.nodes[1].format
		}
		var md []byte
		if root.metadata.size() > 0 {
			md = root.metadata.appendTo(nil)
		}
		f.Add(root.format, "x", md, root.flags, int64(root.children), below, root.dictionary != 0)
	}
	for _, name := range []string{"test.any", "test.fails", "test.panics", "test.int64", "test.renames"} {
		md := pairs{}.withExtension(name, "{}").appendTo(nil)
		f.Add("i", "x", md, int64(0), int64(0), "u", false)
		f.Add("+l", "x", md, int64(2), int64(1), "u", false)
	}

	metadataMemory = make([]byte, maxText+16*maxPairs)
	f.Fuzz(func(t *testing.T, format, name string, md []byte, flags, children int64, below string, dictionary bool) {
		before := bridge.Blocks()
		if children > 4 && children <= MaxNodes {
			children %= 5
		}
		if len(md) > 1<<16 {
			md = md[:1<<16]
		}
		copy(metadataMemory, md)
		defer clear(metadataMemory[:len(md)])

		// One struct stands for every child and for the dictionary; it has two
		// children of its own if its format may need them.
		grandchild := mirror(&abi.ArrowSchema{Format: cString("i")})
		one := mirror(&abi.ArrowSchema{Format: cString(below), Name: cString(name)})
		if len(below) > 0 && below[0] == '+' {
			one.NChildren, one.Children = 2, pointers(grandchild, grandchild)
		}
		root := mirror(&abi.ArrowSchema{
			Format: cString(format), Name: cString(name), Flags: flags, NChildren: children,
			Children: pointers(one, one, one, one),
		})
		if len(md) > 0 {
			root.Metadata = uintptr(unsafe.Pointer(&metadataMemory[0]))
		}
		if dictionary {
			root.Dictionary = uintptr(unsafe.Pointer(one))
		}
		defer func() { foreign = nil }()

		calls := countReleases(t, func(s *abi.ArrowSchema) {
			if s != root {
				bridge.CallSchemaRelease(s)
			}
		})
		field, err := Import(root)
		if *calls != 1 {
			t.Fatalf("%d calls of release, want 1", *calls)
		}
		if err != nil {
			require.True(t, errors.Is(err, arrow.ErrInvalid) || errors.Is(err, arrow.ErrNotImplemented), "%v", err)
			return
		}
		again, err := Import(mustExport(t, field))
		require.NoError(t, err)
		require.NoError(t, sameField(field, again))
		require.Equal(t, before, bridge.Blocks())
	})
}
