package schema

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// foreign keeps the Go memory alive whose address a test puts into a struct.
var foreign []any

// mirror is a struct as a producer would fill it, in Go memory.
func mirror(s *abi.ArrowSchema) *abi.ArrowSchema {
	s.Release = 1 // not to be called
	foreign = append(foreign, s)
	return s
}

// cBytes is the address of a copy of b.
func cBytes(b []byte) uintptr {
	b = slices.Clone(b)
	foreign = append(foreign, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

func cString(s string) uintptr { return cBytes(append([]byte(s), 0)) }

// pointers is the address of an array of the structs' addresses.
func pointers(structs ...*abi.ArrowSchema) uintptr {
	b := make([]byte, 0, 8*len(structs))
	for _, s := range structs {
		b = binary.NativeEndian.AppendUint64(b, uint64(uintptr(unsafe.Pointer(s))))
	}
	return cBytes(b)
}

func int32Bytes(numbers ...int32) (b []byte) {
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// A snapshot is the structs of a tree as they were, so that one that a test has
// corrupted can be released.
type snapshot map[*abi.ArrowSchema]abi.ArrowSchema

func take(s *abi.ArrowSchema) snapshot {
	all := snapshot{}
	var walk func(*abi.ArrowSchema)
	walk = func(s *abi.ArrowSchema) {
		all[s] = *s
		for i := range int(s.NChildren) {
			walk(child(s, i))
		}
		if s.Dictionary != 0 {
			walk(dictionary(s))
		}
	}
	walk(s)
	return all
}

func (all snapshot) restore() {
	for s, was := range all {
		*s = was
	}
}

var (
	leafBase   = arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32}
	listBase   = arrow.Field{Name: "x", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)}
	structBase = arrow.Field{Name: "x", Type: arrow.StructOf(
		arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32}, arrow.Field{Name: "b", Type: arrow.BinaryTypes.String},
	)}
	mapBase  = arrow.Field{Name: "x", Type: arrow.MapOf(arrow.PrimitiveTypes.Int8, arrow.Null)}
	dictBase = arrow.Field{Name: "x", Type: dict(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)}
	reeBase  = arrow.Field{Name: "x", Type: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.Null)}
)

func withFormat(format string) func(*abi.ArrowSchema) {
	return func(s *abi.ArrowSchema) { s.Format = cString(format) }
}

func withMetadata(b []byte) func(*abi.ArrowSchema) {
	return func(s *abi.ArrowSchema) { s.Metadata = cBytes(b) }
}

// badFormats are format strings that are refused, by the base and what is wanted in their place.
var badFormats = []struct {
	base    arrow.Field
	want    string
	formats []string
}{
	{leafBase, `a format string`, []string{""}},
	{leafBase, `UTF-8`, []string{"\xff", "tss:\xff"}},
	{leafBase, `"c"`, []string{"cc"}},
	{leafBase, `"n"`, []string{"n:"}},
	{leafBase, `"i"`, []string{"i "}},
	{leafBase, `"w:<bytes>"`, []string{"w", "w3", "w:", "w:3,5", "w:3x", "w:+3", "w:03", "w:2147483648"}},
	{leafBase, `a width of at least 0`, []string{"w:-1"}},
	{leafBase, `"d:<precision>,<scale>[,<bits>]"`, []string{"d:15", "d:", "d:5,", "d:5,2,128,"}},
	{leafBase, `32, 64, 128 or 256 bits`, []string{"d:5,2,", "d:5,2,96"}},
	{leafBase, `a precision from 1 to 38`, []string{"d:0,0", "d:99,2"}},
	{leafBase, `a precision from 1 to 9`, []string{"d:10,2,32"}},
	{leafBase, `a precision from 1 to 18`, []string{"d:19,2,64"}},
	{leafBase, `a precision from 1 to 76`, []string{"d:77,2,256"}},
	{leafBase, `one of ["tdD" "tdm" "tts" "ttm" "ttu" "ttn" "tDs" "tDm" "tDu" "tDn" "tiM" "tiD" "tin" "tss:[<zone>]" "tsm:[<zone>]" "tsu:[<zone>]" "tsn:[<zone>]"]`, []string{"t"}},
	{leafBase, `one of ["tdD" "tdm"]`, []string{"tdd"}},
	{leafBase, `one of ["tss:[<zone>]" "tsm:[<zone>]" "tsu:[<zone>]" "tsn:[<zone>]"]`, []string{"tss", "tsx:UTC"}},
	{leafBase, `"vu"`, []string{"vuu"}},
	{leafBase, `one of ["+l" "+L" "+vl" "+vL" "+w:<size>" "+s" "+m" "+r" "+us:<id>,<id>..." "+ud:<id>,<id>..."]`, []string{"+"}},
	{mapBase, `"+m"`, []string{"+mm"}},
	{listBase, `one of ["+vl" "+vL"]`, []string{"+v"}},
	{structBase, `one of ["+us:<id>,<id>..." "+ud:<id>,<id>..."]`, []string{"+u", "+ux:0,1"}},
	{structBase, `"+ud:<id>,<id>..."`, []string{"+ud:x", "+ud:0,"}},
	{structBase, `type ids from 0 to 127`, []string{"+ud:0,128", "+ud:-1,0"}},
	{structBase, `each type id once`, []string{"+us:7,7"}},
	{listBase, `"+w:<size>"`, []string{"+w", "+w:"}},
	{listBase, `a size of at least 0`, []string{"+w:-1"}},
}

func init() {
	for _, row := range badFormats {
		for _, format := range row.formats {
			want := fmt.Sprintf(".format = %q, want %s: invalid", format, row.want)
			bad = append(bad, badTree{"format " + format, row.base, withFormat(format), want})
		}
	}
}

// badTree is a way that a tree may be wrong.
type badTree struct {
	name    string
	base    arrow.Field
	corrupt func(*abi.ArrowSchema)
	want    string // the text of the error behind "cdevice: import: ArrowSchema"
}

// bad has those of badFormats, too.
var bad = []badTree{
	{"format NULL", leafBase, func(s *abi.ArrowSchema) { s.Format = 0 }, `.format = NULL, want a string: invalid`},
	{"format +w:0", listBase, withFormat("+w:0"), `.format = "+w:0", want a size of at least 1: not implemented`},
	{"format of a type to come", leafBase, withFormat("q"), `.format = "q": not implemented`},
	{"format of a nested type to come", listBase, withFormat("+z:3"), `.format = "+z:3": not implemented`},
	{"format of a temporal type to come", leafBase, withFormat("tzs"), `.format = "tzs": not implemented`},

	{"name not UTF-8", leafBase, func(s *abi.ArrowSchema) { s.Name = cString("a\xffb") }, `.name = "a\xffb", want UTF-8: invalid`},
	{"name of a child not UTF-8", structBase, func(s *abi.ArrowSchema) { child(s, 1).Name = cString("\xc3") }, `.children[1].name = "\xc3", want UTF-8: invalid`},

	{"n_children negative", structBase, func(s *abi.ArrowSchema) { s.NChildren = -1 }, `.n_children = -1, want at least 0: invalid`},
	{"n_children absurd", structBase, func(s *abi.ArrowSchema) { s.NChildren = math.MaxInt64 }, `.n_children = 9223372036854775807, want at most 1048576 structs in the tree: invalid`},
	{"n_children of a leaf", structBase, withFormat("i"), `.n_children = 2, want 0 for format "i": invalid`},
	{"n_children of a leaf negative", leafBase, func(s *abi.ArrowSchema) { s.NChildren = -1 }, `.n_children = -1, want 0 for format "i": invalid`},
	{"n_children of a list", structBase, withFormat("+l"), `.n_children = 2, want 1 for format "+l": invalid`},
	{"n_children of a list of nothing", leafBase, withFormat("+vL"), `.n_children = 0, want 1 for format "+vL": invalid`},
	{"n_children of a fixed-size list", structBase, withFormat("+w:3"), `.n_children = 2, want 1 for format "+w:3": invalid`},
	{"n_children of a map", structBase, withFormat("+m"), `.n_children = 2, want 1 for format "+m": invalid`},
	{"n_children of run ends", listBase, withFormat("+r"), `.n_children = 1, want 2 for format "+r": invalid`},
	{"n_children of a union", structBase, withFormat("+us:1,2,3"), `.n_children = 2, want 3, one for each type id: invalid`},
	{"children NULL", structBase, func(s *abi.ArrowSchema) { s.Children = 0 }, `.children = NULL, want 2 pointers: invalid`},
	{"child NULL", structBase, func(s *abi.ArrowSchema) {
		s.Children = pointers(nil, nil)
	}, `.children[0] = NULL, want a struct: invalid`},
	{"child released", structBase, func(s *abi.ArrowSchema) { child(s, 1).Release = 0 }, `.children[1].release = NULL: invalid: already released, or never filled`},
	{"child bad", structBase, func(s *abi.ArrowSchema) { child(s, 1).Format = cString("w3") }, `.children[1].format = "w3", want "w:<bytes>": invalid`},
	{"child of a child bad", mapBase, func(s *abi.ArrowSchema) {
		child(child(s, 0), 1).Format = cString("tdd")
	}, `.children[0].children[1].format = "tdd", want one of ["tdD" "tdm"]: invalid`},
	{"child is its own parent", listBase, func(s *abi.ArrowSchema) {
		s.Children = pointers(s)
	}, strings.Repeat(".children[0]", 65) + `, want at most 64 levels below the root: invalid`},
	{"two children are their own parent", structBase, func(s *abi.ArrowSchema) {
		s.Children = pointers(s, s)
	}, strings.Repeat(".children[0]", 65) + `, want at most 64 levels below the root: invalid`},
	{"many dictionaries", structBase, func(s *abi.ArrowSchema) {
		below := mirror(&abi.ArrowSchema{Format: cString("i"), Dictionary: uintptr(unsafe.Pointer(mirror(&abi.ArrowSchema{Format: cString("u")})))})
		s.NChildren, s.Children = 600_000, pointers(slices.Repeat([]*abi.ArrowSchema{below}, 600_000)...)
	}, `.children[448575].dictionary, want at most 1048576 structs in the tree: invalid`},
	{"a name too long", leafBase, func(s *abi.ArrowSchema) { s.Name = cString(strings.Repeat("x", maxText)) }, `.name, want at most 64 MiB of names and metadata in the tree: invalid`},
	{"names too long together", structBase, func(s *abi.ArrowSchema) {
		child(s, 0).Name = cString(strings.Repeat("x", maxText/2))
		child(s, 1).Name = child(s, 0).Name
	}, `.children[1].name, want at most 64 MiB of names and metadata in the tree: invalid`},

	{"dictionary of a string index", dictBase, withFormat("u"), `.format = "u", want an integer type for the indices of a dictionary: invalid`},
	{"dictionary of a bool index", dictBase, withFormat("b"), `.format = "b", want an integer type for the indices of a dictionary: invalid`},
	{"dictionary of a list", listBase, func(s *abi.ArrowSchema) {
		s.Dictionary = uintptr(unsafe.Pointer(child(s, 0)))
	}, `.format = "+l", want an integer type for the indices of a dictionary: invalid`},
	{"dictionary bad", dictBase, func(s *abi.ArrowSchema) { dictionary(s).Format = cString("?") }, `.dictionary.format = "?": not implemented`},
	{"dictionary released", dictBase, func(s *abi.ArrowSchema) { dictionary(s).Release = 0 }, `.dictionary.release = NULL: invalid: already released, or never filled`},
	{"dictionary of itself", dictBase, func(s *abi.ArrowSchema) {
		s.Dictionary = uintptr(unsafe.Pointer(s))
	}, strings.Repeat(".dictionary", 65) + `, want at most 64 levels below the root: invalid`},

	{"map of no struct", listBase, withFormat("+m"), `.children[0] = *arrow.Int32Type, want a struct of a key and a value: invalid`},
	{"map of a struct of one", mapBase, func(s *abi.ArrowSchema) { child(s, 0).NChildren = 1 }, `.children[0] = *arrow.StructType, want a struct of a key and a value: invalid`},
	{"run ends of a string", structBase, func(s *abi.ArrowSchema) {
		s.Format, child(s, 0).Format = cString("+r"), cString("u")
	}, `.children[0] = *arrow.StringType, want int16, int32 or int64 run ends: invalid`},
	{"run ends unsigned", reeBase, func(s *abi.ArrowSchema) { child(s, 0).Format = cString("I") }, `.children[0] = *arrow.Uint32Type, want int16, int32 or int64 run ends: invalid`},
	{"run ends nullable", reeBase, func(s *abi.ArrowSchema) { child(s, 0).Flags = 2 }, `.children[0].flags = nullable, want run ends without nulls: invalid`},

	{"metadata count negative", leafBase, withMetadata(int32Bytes(-1)), `.metadata.n = -1, want 0 to 65536: invalid`},
	{"metadata count absurd", leafBase, withMetadata(int32Bytes(1 << 30)), `.metadata.n = 1073741824, want 0 to 65536: invalid`},
	{"metadata key length negative", leafBase, withMetadata(int32Bytes(1, -5)), `.metadata.keys[0].length = -5, want at least 0: invalid`},
	{"metadata key length absurd", leafBase, withMetadata(int32Bytes(1, math.MaxInt32)), `.metadata.keys[0].length = 2147483647, want at most 64 MiB of names and metadata in the tree: invalid`},
	{"metadata value length negative", leafBase, withMetadata(int32Bytes(2, 0, 0, 0, math.MinInt32)), `.metadata.values[1].length = -2147483648, want at least 0: invalid`},
	{"metadata of a child", listBase, func(s *abi.ArrowSchema) {
		child(s, 0).Metadata = cBytes(int32Bytes(-7))
	}, `.children[0].metadata.n = -7, want 0 to 65536: invalid`},
}

// checkError compares an error with the text of a table, of which three dots at the beginning stand for any beginning.
// The end of the text is the kind of the error.
func checkError(t *testing.T, err error, op, want string) {
	t.Helper()
	kind := arrow.ErrInvalid
	if strings.HasSuffix(want, "not implemented") {
		kind = arrow.ErrNotImplemented
	}
	require.ErrorIs(t, err, kind)
	if tail, ok := strings.CutPrefix(want, "..."); ok {
		assert.True(t, strings.HasSuffix(err.Error(), tail), "got  %v\nwant %s", err, want)
	} else {
		assert.EqualError(t, err, "cdevice: "+op+": ArrowSchema"+want)
	}
}

func TestBadInput(t *testing.T) {
	for _, c := range bad {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			s := mustExport(t, c.base)
			was := take(s)
			c.corrupt(s)
			calls := countReleases(t, func(got *abi.ArrowSchema) {
				assert.Same(t, s, got, "the root is released")
				scribble(s)
				was.restore()
				bridge.CallSchemaRelease(s)
			})
			_, err := Import(s)
			assert.Equal(t, 1, *calls, "calls of release")
			checkError(t, err, "import", c.want)
		})
	}
}

// scribble overwrites the strings of the root, which a producer would free, or as much of them as errors may quote.
func scribble(s *abi.ArrowSchema) {
	for _, addr := range []uintptr{s.Format, s.Name} {
		for range 1 << 16 {
			if addr == 0 || *abi.At[byte](addr) == 0 {
				break
			}
			*abi.At[byte](addr) = '#'
			addr++
		}
	}
}

func TestImportSchemaOfSomethingElse(t *testing.T) {
	for _, c := range []badTree{
		{"a leaf", leafBase, func(*abi.ArrowSchema) {}, `.format = "i", want "+s": invalid: it is no struct of columns; ImportArray, ImportArrayReader and ImportField take all types`},
		{"no format", structBase, func(s *abi.ArrowSchema) { s.Format = 0 }, `.format = NULL, want a string: invalid`},
		{"a dictionary", structBase, func(s *abi.ArrowSchema) { s.Dictionary = uintptr(unsafe.Pointer(child(s, 0))) }, `.dictionary, want NULL: invalid`},
		{"bad metadata", structBase, withMetadata(int32Bytes(-1)), `.metadata.n = -1, want 0 to 65536: invalid`},
		{"a bad child", structBase, func(s *abi.ArrowSchema) { child(s, 0).NChildren = 3 }, `.children[0].n_children = 3, want 0 for format "i": invalid`},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			s := mustExport(t, c.base)
			was := take(s)
			c.corrupt(s)
			calls := countReleases(t, func(s *abi.ArrowSchema) { was.restore(); bridge.CallSchemaRelease(s) })
			got, err := ImportSchema(s)
			checkError(t, err, "import", c.want)
			assert.Nil(t, got)
			assert.Equal(t, 1, *calls, "calls of release")
		})
	}
}
