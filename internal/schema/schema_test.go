package schema

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

func TestMain(m *testing.M) {
	for _, ext := range registered {
		if err := arrow.RegisterExtensionType(ext); err != nil {
			panic(err)
		}
	}
	code := goroutineleak.Run(m)
	if n := bridge.Blocks(); n != 0 {
		fmt.Fprintf(os.Stderr, "%d blocks leaked\n", n)
		code = 1
	}
	os.Exit(code)
}

// noLeak checks that the test gives back every block that it allocates.
func noLeak(t *testing.T) {
	t.Helper()
	before := bridge.Blocks()
	t.Cleanup(func() {
		t.Helper()
		assert.Equal(t, before, bridge.Blocks(), "blocks")
	})
}

// garbage is a struct as C code may hand it in: not zeroed.
func garbage() *abi.ArrowSchema {
	s := new(abi.ArrowSchema)
	for i := range unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)) {
		*(*byte)(unsafe.Add(unsafe.Pointer(s), i)) = 0xdb
	}
	return s
}

func mustExport(t *testing.T, f arrow.Field) *abi.ArrowSchema {
	t.Helper()
	s := garbage()
	require.NoError(t, Export(f, s))
	return s
}

func child(s *abi.ArrowSchema, i int) *abi.ArrowSchema {
	return abi.At[abi.ArrowSchema](abi.Slice[uintptr](s.Children, int(s.NChildren))[i])
}

func dictionary(s *abi.ArrowSchema) *abi.ArrowSchema { return abi.At[abi.ArrowSchema](s.Dictionary) }

// move does what a C consumer does to take a struct out of its parent.
func move(s *abi.ArrowSchema) *abi.ArrowSchema {
	moved := *s
	s.Release = 0
	return &moved
}

// render writes a tree as "name:format" with flags (nullable, ordered, sorted)
// after a blank, metadata in [], children in {} and the dictionary in <>.
func render(s *abi.ArrowSchema) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%s", abi.String(s.Name), abi.String(s.Format))
	if s.Flags != 0 {
		b.WriteByte(' ')
	}
	for _, flag := range []struct {
		bit    int64
		letter byte
	}{{2, 'n'}, {1, 'o'}, {4, 's'}} {
		if s.Flags&flag.bit != 0 {
			b.WriteByte(flag.letter)
		}
	}
	if s.Metadata != 0 {
		limit := maxText
		md, err := readMetadata(s.Metadata, &limit)
		if err != nil {
			return err.Error()
		}
		var kv []string
		for i, k := range md.Keys() {
			kv = append(kv, k+"="+md.Values()[i])
		}
		fmt.Fprintf(&b, " [%s]", strings.Join(kv, " "))
	}
	if s.NChildren > 0 {
		var list []string
		for i := range int(s.NChildren) {
			list = append(list, render(child(s, i)))
		}
		fmt.Fprintf(&b, "{%s}", strings.Join(list, ", "))
	}
	if s.Dictionary != 0 {
		fmt.Fprintf(&b, "<%s>", render(dictionary(s)))
	}
	return b.String()
}

// sameField compares all that arrow-go keeps, the order of metadata included.
func sameField(a, b arrow.Field) error {
	switch {
	case a.Name != b.Name:
		return fmt.Errorf("name %q, want %q", b.Name, a.Name)
	case a.Nullable != b.Nullable:
		return fmt.Errorf("nullable %v, want %v", b.Nullable, a.Nullable)
	case !slices.Equal(a.Metadata.Keys(), b.Metadata.Keys()), !slices.Equal(a.Metadata.Values(), b.Metadata.Values()):
		return fmt.Errorf("metadata %v, want %v", b.Metadata, a.Metadata)
	case reflect.TypeOf(a.Type) != reflect.TypeOf(b.Type):
		return fmt.Errorf("type %T, want %T", b.Type, a.Type)
	case !arrow.TypeEqual(a.Type, b.Type, arrow.CheckMetadata()):
		return fmt.Errorf("type %v, want %v", b.Type, a.Type)
	}
	var x, y plan // TypeEqual looks past some things, such as the names of list elements
	if err := x.export(&a); err != nil {
		return err
	}
	if err := y.export(&b); err != nil {
		return err
	}
	for i := range x.nodes {
		if fmt.Sprint(x.nodes[i]) != fmt.Sprint(y.nodes[i]) {
			return fmt.Errorf("struct %d: %v, want %v", i, y.nodes[i], x.nodes[i])
		}
	}
	return nil
}

func metadata(kv ...string) arrow.Metadata {
	var keys, values []string
	for i := 0; i < len(kv); i += 2 {
		keys, values = append(keys, kv[i]), append(values, kv[i+1])
	}
	return arrow.NewMetadata(keys, values)
}
