package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

var nested = arrow.Field{Name: "root", Type: arrow.StructOf(
	arrow.Field{Name: "list", Type: arrow.ListOf(arrow.BinaryTypes.String), Metadata: metadata("k", "v")},
	arrow.Field{Name: "dict", Type: dict(arrow.PrimitiveTypes.Int8, arrow.ListOf(arrow.Null))},
)}

func TestExportIsOneAllocation(t *testing.T) {
	noLeak(t)
	before := bridge.Blocks()
	s := mustExport(t, nested)
	if n := bridge.Blocks() - before; n != 1 {
		t.Errorf("%d blocks, want 1", n)
	}
	block := abi.At[bridge.Block](s.PrivateData)
	if block.Live != 6 || block.Handle != 0 {
		t.Errorf("block %+v, want 6 structs and no handle", *block)
	}
	bridge.CallSchemaRelease(s)
	if s.Release != 0 {
		t.Error("release does not mark the struct as released")
	}
}

func TestMovedChildOutlivesItsParent(t *testing.T) {
	noLeak(t)
	before := bridge.Blocks()
	s := mustExport(t, nested)
	list, values := move(child(s, 0)), move(dictionary(child(s, 1)))
	bridge.CallSchemaRelease(s)
	if bridge.Blocks() != before+1 {
		t.Fatal("the block is gone while two structs of it are alive")
	}
	if got, want := render(list), "list:+l [k=v]{item:u n}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f, err := Import(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameField(nested.Type.(*arrow.StructType).Field(0), f); err != nil {
		t.Error(err)
	}
	if bridge.Blocks() != before+1 {
		t.Fatal("the block is gone while a struct of it is alive")
	}
	item := move(child(values, 0))
	bridge.CallSchemaRelease(values)
	if f, err = Import(item); err != nil || f.Type != arrow.Null {
		t.Errorf("%v, %v", f, err)
	}
}

func TestImportOfATreeWhoseChildWasMovedOut(t *testing.T) {
	noLeak(t)
	s := mustExport(t, nested)
	list := move(child(s, 0))
	_, err := Import(s)
	if err == nil || !strings.Contains(err.Error(), "ArrowSchema.children[0].release = NULL: invalid: already released") {
		t.Errorf("error = %v", err)
	}
	if _, err := Import(list); err != nil {
		t.Error(err)
	}
}

func TestImportReleasesTheRootOnceAndNoChild(t *testing.T) {
	for _, fail := range []bool{false, true} {
		noLeak(t)
		s := mustExport(t, nested)
		if fail {
			child(s, 1).Format = 0
		}
		calls := countReleases(t, func(got *abi.ArrowSchema) {
			if got != s {
				t.Errorf("release of a struct that is not the root")
			}
			bridge.CallSchemaRelease(got)
		})
		if _, err := Import(s); (err != nil) != fail {
			t.Errorf("error = %v", err)
		}
		if *calls != 1 {
			t.Errorf("%d calls of release, want 1", *calls)
		}
	}
}

func TestImportOfNothingCallsNothing(t *testing.T) {
	noLeak(t)
	calls := countReleases(t, func(*abi.ArrowSchema) {})
	released := mustExport(t, nested)
	bridge.CallSchemaRelease(released)
	for want, s := range map[string]*abi.ArrowSchema{
		"cdevice: import: ArrowSchema = NULL, want a struct: invalid":            nil,
		"cdevice: import: ArrowSchema.release = NULL: invalid: already released": released,
	} {
		if _, err := Import(s); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if _, err := ImportSchema(s); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if *calls != 0 {
		t.Errorf("%d calls of release, want none", *calls)
	}
}

// countReleases replaces the call of release for the rest of the test.
func countReleases(t *testing.T, call func(*abi.ArrowSchema)) *int {
	calls, saved := 0, release
	release = func(s *abi.ArrowSchema) { calls++; call(s) }
	t.Cleanup(func() { release = saved })
	return &calls
}

func BenchmarkSchemaOf100Columns(b *testing.B) {
	fields := make([]arrow.Field, 100)
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint("column ", i), Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	}
	schema := arrow.NewSchema(fields, nil)
	s := new(abi.ArrowSchema)
	b.Run("export", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := ExportSchema(schema, s); err != nil {
				b.Fatal(err)
			}
			bridge.CallSchemaRelease(s)
		}
	})
	b.Run("export and import", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := ExportSchema(schema, s); err != nil {
				b.Fatal(err)
			}
			if _, err := ImportSchema(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first export", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var p plan
			if err := p.exportSchema(schema); err != nil {
				b.Fatal(err)
			}
			if err := p.write(s); err != nil {
				b.Fatal(err)
			}
			bridge.CallSchemaRelease(s)
		}
	})
	b.Run("first import", func(b *testing.B) {
		if err := ExportSchema(schema, s); err != nil {
			b.Fatal(err)
		}
		defer bridge.CallSchemaRelease(s)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := checkSize(s); err != nil {
				b.Fatal(err)
			}
			if _, err := (&reader{nodes: MaxNodes - 1, text: maxText}).schema(s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
