package schema

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
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
		"children":     {shared(60, "i", twice), `.children[1].n_children = 2, want at most 1048576 structs in the tree: invalid`},
		"dictionaries": {shared(30, "i", twiceAndDictionary), `, want at most 1048576 structs in the tree: invalid`},
	} {
		for kind, read := range map[string]func(*abi.ArrowSchema) error{
			"schema": func(s *abi.ArrowSchema) error { _, err := ImportSchema(s); return err },
			"field":  func(s *abi.ArrowSchema) error { _, err := Import(s); return err },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				calls := countReleases(t, func(*abi.ArrowSchema) {})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := time.Now()
				err := read(row.root)
				took := time.Since(start)
				runtime.ReadMemStats(&after)
				if err == nil || !strings.HasSuffix(err.Error(), row.want) {
					t.Errorf("got %v\nwant ...%s", err, row.want)
				}
				if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 && !underASan {
					t.Errorf("%d bytes allocated for 61 structs", allocated)
				}
				if took > 10*time.Second && !underASan { // to visit all of them would take hours
					t.Errorf("took %v", took)
				}
				t.Log(took)
				if *calls != 1 {
					t.Errorf("%d calls of release", *calls)
				}
			})
		}
	}
}

// The structs of a tree that is not too large are all read.
func TestTreesUpToTheLimitAreRead(t *testing.T) {
	countReleases(t, func(*abi.ArrowSchema) {})
	f, err := Import(shared(15, "i", twice)) // 65535 structs
	if err != nil {
		t.Fatal(err)
	}
	if n := f.Type.(*arrow.StructType).NumFields(); n != 2 {
		t.Errorf("%d fields", n)
	}
}

// refusing registers an extension type whose Deserialize fails with the text.
func refusing(t *testing.T, name, text string) {
	t.Helper()
	err := arrow.RegisterExtensionType(&testType{name: name, rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return nil, errors.New(text)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = arrow.UnregisterExtensionType(name) })
}

func addressOf(s *abi.ArrowSchema) uintptr { return uintptr(unsafe.Pointer(s)) }

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
			if err == nil {
				t.Fatal("no error")
			}
			if text := err.Error(); len(text) > 1500 {
				t.Errorf("an error of %d bytes: %s", len(text), text[:1000])
			}
			if !errors.Is(err, arrow.ErrInvalid) && !errors.Is(err, arrow.ErrNotImplemented) {
				t.Error(err)
			}
		})
	}
}
