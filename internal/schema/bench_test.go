package schema

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// A schema of 1 to 1,000 fields that was not seen before, and one that was.

func benchmark(b *testing.B, body func(b *testing.B, s *arrow.Schema, out *abi.ArrowSchema)) {
	for _, columns := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("columns=%d", columns), func(b *testing.B) {
			fields := make([]arrow.Field, columns)
			for i := range fields {
				fields[i] = arrow.Field{Name: fmt.Sprint("column ", i), Type: arrow.PrimitiveTypes.Int64, Nullable: true}
			}
			b.ReportAllocs()
			body(b, arrow.NewSchema(fields, nil), new(abi.ArrowSchema))
		})
	}
}

func BenchmarkExport(b *testing.B) {
	benchmark(b, func(b *testing.B, s *arrow.Schema, out *abi.ArrowSchema) {
		for b.Loop() {
			must(b, ExportSchema(s, out))
			release(out)
		}
	})
}

func BenchmarkExportAndImport(b *testing.B) {
	benchmark(b, func(b *testing.B, s *arrow.Schema, out *abi.ArrowSchema) {
		for b.Loop() {
			must(b, ExportSchema(s, out))
			_, err := ImportSchema(out)
			must(b, err)
		}
	})
}

func BenchmarkFirstExport(b *testing.B) {
	benchmark(b, func(b *testing.B, s *arrow.Schema, out *abi.ArrowSchema) {
		for b.Loop() {
			p := plans.Get().(*plan)
			must(b, p.exportSchema(s))
			must(b, p.write(out))
			p.end()
			release(out)
		}
	})
}

func BenchmarkFirstImport(b *testing.B) {
	benchmark(b, func(b *testing.B, s *arrow.Schema, out *abi.ArrowSchema) {
		must(b, ExportSchema(s, out))
		defer release(out)
		for b.Loop() {
			_, err := checkSize(out)
			must(b, err)
			_, err = (&reader{nodes: MaxNodes - 1, text: maxText}).schema(out)
			must(b, err)
		}
	})
}

// BenchmarkImportFloor is the floor of BenchmarkFirstImport: fields of types without children, which are not checked.
func BenchmarkImportFloor(b *testing.B) {
	benchmark(b, func(b *testing.B, s *arrow.Schema, out *abi.ArrowSchema) {
		must(b, ExportSchema(s, out))
		defer release(out)
		for b.Loop() {
			fields := make([]arrow.Field, out.NChildren)
			for i, at := range abi.Slice[uintptr](out.Children, len(fields)) {
				child := abi.At[abi.ArrowSchema](at)
				format := abi.Slice[byte](child.Format, abi.StringLen(child.Format, maxText))
				name := abi.Slice[byte](child.Name, abi.StringLen(child.Name, maxText))
				fields[i] = arrow.Field{Name: string(name), Type: byText[string(format)].leaf, Nullable: child.Flags&abi.FlagNullable != 0}
			}
			arrow.NewSchema(fields, nil)
		}
	})
}

// must fails the benchmark. Functions of testify would take a part of the time.
func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}
