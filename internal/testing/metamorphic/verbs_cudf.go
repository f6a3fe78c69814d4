package metamorphic

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Operations of batches for cuDF.

func init() {
	register(
		&verb{name: "cudf", weight: 2, draw: drawCuDF, expect: expectCuDF, do: doCuDF},
		&verb{name: "cudf of", weight: 3, draw: drawCuDFOf, expect: expectCuDFOf, do: doCuDFOf},
	)
}

// isForCuDF reports whether libcudf has the type.
func isForCuDF(dt arrow.DataType) bool {
	switch t := dt.(type) {
	case *arrow.Float16Type, *arrow.Date64Type:
		return false
	case *arrow.NullType, *arrow.BooleanType, *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType,
		*arrow.Date32Type, *arrow.DurationType, *arrow.Decimal32Type, *arrow.Decimal64Type, *arrow.Decimal128Type, *arrow.TimestampType:
		return true
	case *arrow.DictionaryType:
		return !arrow.IsNested(t.ValueType.ID()) && isForCuDF(t.ValueType)
	case arrow.ExtensionType:
		return isForCuDF(t.StorageType())
	case *arrow.ListType, *arrow.FixedSizeListType, *arrow.StructType:
		return !slices.ContainsFunc(t.(arrow.NestedType).Fields(), func(f arrow.Field) bool { return !isForCuDF(f.Type) })
	}
	return arrow.IsInteger(dt.ID()) || arrow.IsFloating(dt.ID())
}

func hasZone(name string) bool {
	t, ok := caseOf(name).Type.(*arrow.TimestampType)
	return ok && t.TimeZone != ""
}

func drawCuDF(g *generator) (Op, bool) {
	b := g.one(given(isReady, func(b *object) bool { return b.at == home && len(b.types) > 0 }), batchKind)
	if b == nil {
		return Op{}, false
	}
	return Op{Out: g.name(batchKind), On: []string{b.name}, Args: []string{[]string{"", "loss"}[g.IntN(2)]}}, true
}

func expectCuDF(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil || !b.ready() || b.at != home || len(b.types) == 0 {
		return "", false
	}
	if slices.ContainsFunc(b.types, func(name string) bool {
		return !isForCuDF(caseOf(name).Type) || hasZone(name) && o.arg(0) == ""
	}) {
		return failed("ErrNotImplemented"), true
	}
	m.owned(m.add(o.Out, batchKind, object{table: b.table, at: home}))
	return "ok", true
}

// doCuDF copies what ForCuDF and FromCuDF make, which may share the memory or not.
func doCuDF(r *run, o Op) string {
	return r.throughCuDF(value[*cdevice.RecordBatch](r, o.On[0]), r.tables[o.On[0]].table, o.Out, o.arg(0) == "loss")
}

// convertible are types that cuDF does not have, and gets as others, or has in its own way.
var convertible = []string{"fixed_size_list", "dictionary_uint8", "dictionary_uint32", "timestamp_s_zone", "list", "list_utf8", "struct", "utf8", "dictionary_int8", "bool", "extension_bool8"}

func drawCuDFOf(g *generator) (Op, bool) {
	types := []string{convertible[g.IntN(len(convertible))], convertible[g.IntN(len(convertible))]}
	return Op{Out: g.name(batchKind), Args: []string{"batch", joined(types), num(g.IntN(3)), num(1 + g.IntN(20)), num(g.IntN(1000)), string(home)}}, true
}

func expectCuDFOf(m *model, o Op) (string, bool) {
	s := specOf(o)
	if len(s.types) == 0 || slices.ContainsFunc(s.types, func(name string) bool { return !isForCuDF(caseOf(name).Type) }) {
		return "", false
	}
	m.owned(m.add(o.Out, batchKind, object{table: s.table(), at: home}))
	return "ok", true
}

// doCuDFOf is doCuDF of a new batch.
func doCuDFOf(r *run, o Op) string {
	wrapped := Op{Out: o.Out + ".wrapped", Args: o.Args}
	if got := doWrap(r, wrapped); got != "ok" {
		return got
	}
	b := value[*cdevice.RecordBatch](r, wrapped.Out)
	defer b.Release()
	return r.throughCuDF(b, specOf(o).table(), o.Out, true)
}

func (r *run) throughCuDF(b *cdevice.RecordBatch, t table, out string, loss bool) string {
	var opts []cdevice.CuDFOption
	if loss {
		opts = append(opts, cdevice.WithTimeZoneLoss())
	}
	fitted, err := b.ForCuDF(background, opts...)
	if r.home.ID().Type == device.CPU {
		if text := errorText(err); text != failed("ErrNotSupported") {
			return "ForCuDF of memory of the CPU: " + text
		}
		if r.tables[out].kind == "" {
			return failed("ErrNotImplemented")
		}
		return made(r, out)(b.CopyTo(background, r.home))
	}
	if err != nil {
		return errorText(err)
	}
	defer fitted.Release()
	for i := range fitted.NumCols() {
		c := fitted.Column(i)
		offset, nulls, dt := c.Offset(), c.NullCount(), c.DataType()
		c.Release()
		if offset != 0 || nulls < 0 || dt.ID() == arrow.FIXED_SIZE_LIST {
			return fmt.Sprintf("column %d for cuDF is %v with the offset %d, and %d nulls", i, dt, offset, nulls)
		}
	}
	back, err := fitted.FromCuDF(background, t.schema())
	if err != nil {
		return err.Error()
	}
	defer back.Release()
	return made(r, out)(back.CopyTo(background, r.home))
}
