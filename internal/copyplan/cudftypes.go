package copyplan

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// cuDFTypes decides as which types libcudf is given the nodes of a tree.
type cuDFTypes struct{ dropZones bool }

// of returns the types of the nodes, or an error for one that libcudf cannot import without loss. changed reports
// that one is not the type that the node has.
func (c cuDFTypes) of(t tree.Tree) (types []arrow.DataType, changed bool, err error) {
	if len(t.Nodes) == 0 { // libcudf would make a table of no rows of it
		return nil, false, fielderr.New(fielderr.OpCuDF, "columns", 0, "at least one (cuDF)", arrow.ErrNotImplemented)
	}
	types = make([]arrow.DataType, len(t.Nodes))
	for i := range t.Nodes {
		became, err := c.node(&t.Nodes[i])
		if err != nil {
			return nil, false, fielderr.Within(t.Name(i), err)
		}
		changed = changed || became != nil
		types[i] = orOwn(became, t.Nodes[i].Type)
	}
	return types, changed, nil
}

// orOwn returns the type that a type became, which is nil if it stays.
func orOwn(changed, own arrow.DataType) arrow.DataType {
	if changed != nil {
		return changed
	}
	return own
}

// node returns the type that a node becomes, or nil if its type stays.
func (c cuDFTypes) node(n *tree.Node) (arrow.DataType, error) {
	st := n.Storage()
	if err := checkCuDFRows(n, st); err != nil {
		return nil, err
	}
	switch st.ID() {
	case arrow.NULL, arrow.BOOL, arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64,
		arrow.FLOAT32, arrow.FLOAT64, arrow.DATE32, arrow.DURATION, arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128,
		arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return nil, nil
	case arrow.TIMESTAMP:
		if st.(*arrow.TimestampType).TimeZone != "" && !c.dropZones {
			return nil, fielderr.New(fielderr.OpCuDF, "type", n.Type, "a timestamp without a time zone, or the choice to lose it (cuDF)", arrow.ErrNotImplemented)
		}
		return nil, nil
	case arrow.LIST, arrow.FIXED_SIZE_LIST, arrow.STRUCT:
		return c.nested(n, st)
	case arrow.DICTIONARY:
		return c.dictionary(n, st.(*arrow.DictionaryType))
	}
	return nil, fielderr.New(fielderr.OpCuDF, "type", n.Type, "a type that cuDF has", arrow.ErrNotImplemented)
}

// nested returns the type that a list or struct becomes.
func (c cuDFTypes) nested(n *tree.Node, st arrow.DataType) (arrow.DataType, error) {
	became := make([]arrow.DataType, len(n.Children))
	change := st.ID() == arrow.FIXED_SIZE_LIST
	for i := range n.Children {
		changed, err := c.node(&n.Children[i])
		if err != nil {
			return nil, fielderr.Within(n.ChildName(i), err)
		}
		change = change || changed != nil
		became[i] = orOwn(changed, n.Children[i].Type)
	}
	if !change {
		return nil, nil
	}
	if s, ok := st.(*arrow.StructType); ok {
		fields := s.Fields()
		for i := range fields {
			fields[i].Type = became[i]
		}
		return arrow.StructOf(fields...), nil
	}
	item := st.(arrow.ListLikeType).ElemField()
	item.Type = became[0]
	return arrow.ListOfField(item), nil
}

// dictionary returns the type that a dictionary becomes: one with signed indices.
func (c cuDFTypes) dictionary(n *tree.Node, dt *arrow.DictionaryType) (arrow.DataType, error) {
	values := &n.Children[0]
	switch values.Storage().ID() {
	case arrow.NULL, arrow.LIST, arrow.FIXED_SIZE_LIST, arrow.STRUCT, arrow.DICTIONARY:
		return nil, fielderr.New(fielderr.OpCuDF, n.ChildName(0)+".type", values.Type, "values that are neither nested nor null (cuDF)", arrow.ErrNotImplemented)
	}
	if _, err := c.node(values); err != nil {
		return nil, fielderr.Within(n.ChildName(0), err)
	}
	signed, ok := signedOf[dt.IndexType.ID()]
	if !ok {
		return nil, nil
	}
	most := int64(1)<<(signed.(arrow.FixedWidthDataType).BitWidth()-1) - 1 // the largest index
	if values.Length-1 > most {
		return nil, fielderr.New(fielderr.OpCuDF, n.ChildName(0)+".length", values.Length, fmt.Sprintf("at most %d, the values that %s can index (cuDF)", most+1, signed), arrow.ErrNotImplemented)
	}
	return &arrow.DictionaryType{IndexType: signed, ValueType: dt.ValueType, Ordered: dt.Ordered}, nil
}

// signedOf has the signed type of the width of each unsigned one.
var signedOf = map[arrow.Type]arrow.DataType{
	arrow.UINT8: arrow.PrimitiveTypes.Int8, arrow.UINT16: arrow.PrimitiveTypes.Int16,
	arrow.UINT32: arrow.PrimitiveTypes.Int32, arrow.UINT64: arrow.PrimitiveTypes.Int64,
}

// checkCuDFRows returns an error if libcudf cannot count the rows of the node, or its offsets, with 32 bits.
func checkCuDFRows(n *tree.Node, st arrow.DataType) error {
	most := int64(math.MaxInt32)
	switch st.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW, arrow.LIST, arrow.FIXED_SIZE_LIST:
		most-- // there is one more offset
	}
	if n.Length > most {
		return fielderr.New(fielderr.OpCuDF, "length", n.Length, fmt.Sprintf("at most %d (cuDF)", most), arrow.ErrNotImplemented)
	}
	if f, ok := st.(*arrow.FixedSizeListType); ok && n.Length*int64(f.Len()) > math.MaxInt32 {
		return fielderr.New(fielderr.OpCuDF, "length", n.Length, fmt.Sprintf("at most %d lists of %d elements (cuDF)", math.MaxInt32/f.Len(), f.Len()), arrow.ErrNotImplemented)
	}
	return nil
}

// fromCuDFType returns an error unless an array, as libcudf exported it, is an array of the type: of the same
// type, or of one that ForCuDF or libcudf turned into it. lists reports that a list becomes a list of a fixed
// size, which the contents of the array decide.
func fromCuDFType(n *tree.Node, want arrow.DataType) (lists bool, err error) {
	from, to := n.Storage(), layout.StorageType(want)
	if to == nil {
		return false, notFromCuDF(n.Type, want)
	}
	if keysAreLost(n, to) {
		return false, nil
	}
	same := from.ID() == to.ID()
	switch to := to.(type) {
	case *arrow.FixedSizeListType:
		lists = from.ID() == arrow.LIST
		same = lists || same && from.(*arrow.FixedSizeListType).Len() == to.Len()
	case *arrow.TimestampType:
		f, ok := from.(*arrow.TimestampType)
		return false, unless(ok && f.Unit == to.Unit && (f.TimeZone == "" || f.TimeZone == to.TimeZone), n, want)
	case arrow.DecimalType:
		f, ok := from.(arrow.DecimalType)
		return false, unless(ok && same && f.GetScale() == to.GetScale(), n, want)
	case *arrow.DictionaryType:
		f, ok := from.(*arrow.DictionaryType)
		same = ok && sameIndex(f.IndexType, to.IndexType)
	case *arrow.ListType:
	case *arrow.StructType:
		same = same && from.(*arrow.StructType).NumFields() == to.NumFields()
	default:
		return false, unless(arrow.TypeEqual(from, to), n, want)
	}
	if !same {
		return false, notFromCuDF(n.Type, want)
	}
	for i := range n.Children {
		below, err := fromCuDFType(&n.Children[i], layout.ChildType(to, i))
		if err != nil {
			return false, fielderr.Within(n.ChildName(i), err)
		}
		lists = lists || below
	}
	return lists, nil
}

// keysAreLost reports whether the array is a dictionary array of libcudf's without rows: libcudf keeps no keys of
// it, and exports int64 as their type.
func keysAreLost(n *tree.Node, to arrow.DataType) bool {
	return to.ID() == arrow.DICTIONARY && n.Length == 0 && n.Storage().ID() == arrow.DICTIONARY
}

func sameIndex(got, want arrow.DataType) bool {
	signed := signedOf[want.ID()]
	return got.ID() == want.ID() || signed != nil && got.ID() == signed.ID()
}

func unless(fits bool, n *tree.Node, want arrow.DataType) error {
	if fits {
		return nil
	}
	return notFromCuDF(n.Type, want)
}

func notFromCuDF(got, want arrow.DataType) error {
	return fielderr.New(fielderr.OpFromCuDF, "type", got, want, arrow.ErrType)
}

// relabelAll returns the nodes with other types, whose buffers are the same; see relabel.
func relabelAll(nodes []tree.Node, types []arrow.DataType) []tree.Node {
	out := make([]tree.Node, len(nodes))
	for i := range nodes {
		out[i] = relabel(&nodes[i], types[i])
	}
	return out
}

// relabel returns the node with another type, whose buffers are the same. A list may become a list of a fixed
// size: its offsets, which are those of such lists, are left out. A dictionary array whose keys are lost is made anew.
func relabel(n *tree.Node, dt arrow.DataType) tree.Node {
	r := *n
	st, l := layout.Of(dt)
	if keysAreLost(n, st) {
		return emptyNode(dt)
	}
	if r.Layout.Kind == layout.List32 && l.Kind == layout.FixedList {
		r.Buffers = r.Buffers[:1:1]
	}
	r.Type, r.Layout = dt, l
	if len(n.Children) > 0 {
		r.Children = make([]tree.Node, len(n.Children))
	}
	for i := range r.Children {
		r.Children[i] = relabel(&n.Children[i], layout.ChildType(st, i))
	}
	return r
}

// emptyNode returns an array without elements or memory.
func emptyNode(dt arrow.DataType) tree.Node {
	st, l := layout.Of(dt)
	n := tree.Node{Type: dt, Layout: l, Buffers: abi.Slice[uintptr](bridge.Zeros, l.Buffers)}
	if count := l.ChildCount(st); count > 0 {
		n.Children = make([]tree.Node, count)
	}
	for i := range n.Children {
		n.Children[i] = emptyNode(layout.ChildType(st, i))
	}
	return n
}

func hasKind(n *tree.Node, id arrow.Type) bool {
	if n.Storage().ID() == id {
		return true
	}
	for i := range n.Children {
		if hasKind(&n.Children[i], id) {
			return true
		}
	}
	return false
}
