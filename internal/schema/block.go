package schema

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

const (
	structSize  = int(unsafe.Sizeof(abi.ArrowSchema{}))
	pointerSize = int(unsafe.Sizeof(uintptr(0)))
)

// newBlock allocates the block of a tree of so many structs.
func newBlock(size, structs int) (*bridge.Block, error) {
	block := bridge.NewBlock(uintptr(size))
	if block == nil {
		return nil, &fielderr.Error{Err: fmt.Errorf("cannot allocate %d bytes: %w", size, syscall.ENOMEM)}
	}
	*block = bridge.Block{Live: int64(structs)}
	if origin := live.Add(exportedKind); origin != nil {
		block.Attach(traced{origin})
	}
	return block, nil
}

// exportedKind is the kind of an exported tree in lists of live objects.
const exportedKind = "exported ArrowSchema"

// traced takes an exported tree from the list when its last struct is released.
type traced struct{ origin *live.Object }

// Release removes the tree from the list.
func (t traced) Release() { t.origin.Remove() }
