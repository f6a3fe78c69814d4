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
	v := newValidator(ctx)
	var err error
	gone := memcopy.Guard(func() error {
		err = v.all(&t)
		return nil
	})
	if gone != nil {
		return fmt.Errorf("cdevice: validate: %w: %w", gone, arrow.ErrInvalid)
	}
	return err
}

func (v *validator) all(t *tree.Tree) error {
	return t.Each(func(n *tree.Node) error {
		if err := v.probeCPUMemory(n); err != nil {
			return err
		}
		return fielderr.During(fielderr.OpValidate, v.contents(n))
	})
}
