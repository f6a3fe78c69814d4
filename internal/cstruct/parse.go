// Package cstruct converts C structs, and array data of arrow-go, to trees, and trees to C structs. It
// checks each field of a foreign struct before it uses it.
package cstruct

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// parseColumns makes the nodes of a record batch's columns, or an error that names the field that is
// wrong. It does not change the struct.
func parseColumns(in *Input, s *arrow.Schema) ([]tree.Node, error) {
	count, err := countColumns(s)
	if err != nil {
		return nil, err
	}
	root := in.Array
	if err := checkBatchRoot(in, s.NumFields()); err != nil {
		return nil, fielderr.Within(in.Names.root(0), err)
	}
	nodes := make([]tree.Node, count)
	columns := tree.Take(&nodes, s.NumFields())
	im := Parser{Nodes: nodes}
	pointers := abi.Slice[uintptr](root.Children, len(columns))
	for i := range columns {
		if err := im.child(&columns[i], pointers[i], s.Field(i).Type, root.Offset+root.Length); err != nil {
			return nil, fielderr.Within(in.Names.column(i), err)
		}
		cutColumn(&columns[i], root)
	}
	return columns, checkEvent(in, columns)
}

// recoverType turns the panic of a caller's type, which may be an extension type of the program, into an error.
func recoverType(err *error) {
	if v := recover(); v != nil {
		*err = fielderr.New(fielderr.OpImport, "schema", nil, nil, layout.TypePanic(v))
	}
}

// countColumns returns the number of nodes of the columns of a batch.
func countColumns(s *arrow.Schema) (count int, err error) {
	i := 0
	defer func() {
		if err != nil {
			err = fielderr.New(fielderr.OpImport, fmt.Sprintf("schema.field[%d].type", i), nil, nil, err)
		}
	}()
	defer layout.RecoverType(&err)
	for ; i < s.NumFields(); i++ {
		if err := layout.CountNodes(s.Field(i).Type, 1, &count); err != nil {
			return 0, err
		}
	}
	return count, nil
}

// countArray returns the number of nodes of an array of the type.
func countArray(dt arrow.DataType) (count int, err error) {
	defer layout.RecoverType(&err)
	err = layout.CountNodes(dt, 0, &count)
	return count, err
}

// ImportArray makes the nodes of an array; the first one is its root. It does not change the struct.
func ImportArray(in *Input, dt arrow.DataType) (made []tree.Node, err error) {
	if err := checkDevice(in.ID, in.Event); err != nil {
		return nil, err
	}
	defer recoverType(&err)
	count, err := countArray(dt)
	if err != nil {
		return nil, fielderr.New(fielderr.OpImport, "schema.type", nil, nil, err)
	}
	nodes := make([]tree.Node, count)
	root := tree.Take(&nodes, 1)
	im := Parser{Nodes: nodes}
	if err := im.Node(&root[0], in.Array, dt); err != nil {
		return nil, fielderr.Within(in.Names.root(0), err)
	}
	return root, checkEvent(in, root)
}

// Parser makes nodes of C structs, guided by the type: it reads a child only if the type has one,
// so that it follows no cycle of structs.
type Parser struct {
	Nodes []tree.Node // not yet used
}

// child imports the struct that an entry of ArrowArray.children points to.
func (im *Parser) child(n *tree.Node, addr uintptr, dt arrow.DataType, least int64) error {
	if err := checkPointer("pointer", addr, "the address of a struct"); err != nil {
		return err
	}
	a := abi.At[abi.ArrowArray](addr)
	if a.Release == 0 {
		return fielderr.NoRelease(fielderr.OpImport, "release")
	}
	if err := im.Node(n, a, dt); err != nil {
		return err
	}
	if n.Length < least {
		return fielderr.Invalid(fielderr.OpImport, "length", n.Length, fmt.Sprintf("at least %d", least))
	}
	return nil
}

// Node checks the struct of one array, and fills n and the nodes below it.
func (im *Parser) Node(n *tree.Node, a *abi.ArrowArray, dt arrow.DataType) error {
	st, l := layout.Of(dt)
	if err := checkCounts(a, st, l); err != nil {
		return err
	}
	n.Type = dt
	fillNode(n, l, a)
	if err := checkBuffers(n, a.NullCount, st, l); err != nil {
		return err
	}
	return im.children(n, a, st)
}

func (im *Parser) children(n *tree.Node, a *abi.ArrowArray, st arrow.DataType) error {
	if n.Layout.Kind == layout.Dictionary {
		if a.Dictionary == 0 {
			return fielderr.Invalid(fielderr.OpImport, "dictionary", "NULL", fmt.Sprintf("a struct for %s", fielderr.Describe(st)))
		}
		if err := checkChildren(a, 0, st); err != nil {
			return err
		}
		n.Children = tree.Take(&im.Nodes, 1)
		return fielderr.Within("dictionary", im.child(&n.Children[0], a.Dictionary, layout.ChildType(st, 0), 0))
	}
	if a.Dictionary != 0 {
		return fielderr.Invalid(fielderr.OpImport, "dictionary", fielderr.Hex(a.Dictionary), fmt.Sprintf("NULL for %s", fielderr.Describe(st)))
	}
	count := n.Layout.ChildCount(st)
	if err := checkChildren(a, count, st); err != nil || count == 0 {
		return err
	}
	n.Children = tree.Take(&im.Nodes, count)
	least, ok := layout.ChildLength(st, a.Offset+a.Length)
	if !ok {
		return fielderr.Invalid(fielderr.OpImport, "length", n.Length, fmt.Sprintf("fewer elements than int64 can count the values of, for %s", fielderr.Describe(st)))
	}
	for i, addr := range abi.Slice[uintptr](a.Children, count) {
		if err := im.child(&n.Children[i], addr, layout.ChildType(st, i), least); err != nil {
			return fielderr.Within(fielderr.Child(i), err)
		}
	}
	if n.Layout.Kind == layout.RunEnds {
		return checkRuns(fielderr.OpImport, n)
	}
	return nil
}
