package copyplan

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// NumBytes returns the number of bytes that the elements of the tree take in all buffers, without
// alignment.
func NumBytes(ctx context.Context, t tree.Tree) (int64, error) {
	src, err := openSource(ctx, t, nil)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	plans, err := src.Plan(false)
	if err != nil {
		return 0, err
	}
	size := int64(0)
	for _, p := range layBlock(plans).parts {
		size += p.Size
	}
	return size, nil
}
