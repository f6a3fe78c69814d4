// Package validate checks the contents of the buffers of a tree, and that they are memory of the
// declared device, for cdevice.RecordBatch.ValidateFull.
package validate

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Tree waits for the event and checks the contents of a tree. It asks the device about its memory
// before it reads that memory.
func Tree(ctx context.Context, t tree.Tree) error {
	if err := fielderr.ContextError(ctx, fielderr.OpValidate); err != nil {
		return err
	}
	if !t.At.CPUAccessible() {
		return checkRemote(ctx, &t)
	}
	if id := t.At.ID; id.Type != device.CPU && id.Type.CPUAccessible() && !t.At.Assumed {
		return checkPinned(ctx, &t)
	}
	if err := t.At.Synchronize(ctx); err != nil {
		return err
	}
	return newValidator(ctx).from(&t, 0, false)
}

// from checks the nodes of a tree from the i-th on. guarded is true if memory that is not there is an error where it is read.
func (v *validator) from(t *tree.Tree, i int, guarded bool) error {
	for ; i < len(t.Nodes); i++ {
		n := &t.Nodes[i]
		if !guarded && reads(n) {
			return v.guarded(t, i)
		}
		if err := v.node(n); err != nil {
			return fielderr.Within(t.Name(i), err)
		}
	}
	return nil
}

func (v *validator) guarded(t *tree.Tree, i int) (err error) {
	gone := memcopy.Guard(func() error {
		err = v.from(t, i, true)
		return nil
	})
	if gone != nil {
		return fmt.Errorf("cdevice: validate: %w: %w", gone, arrow.ErrInvalid)
	}
	return err
}

func (v *validator) node(n *tree.Node) error {
	if err := v.probeCPUMemory(n); err != nil {
		return err
	}
	return fielderr.During(fielderr.OpValidate, v.contents(n))
}
