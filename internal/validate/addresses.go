package validate

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Checks of addresses. The declared device is asked about its memory, even if the CPU can access
// it; all open devices are asked about plain CPU memory, which must not be theirs.

// probeCPUMemory checks that no buffer that the CPU is about to read is memory of a device, since
// reading that would crash the process. Only devices that are already open are asked.
func (v *validator) probeCPUMemory(n *tree.Node) error {
	for i, addr := range n.Buffers {
		if addr == 0 || n.Length == 0 {
			continue
		}
		if err := v.Spend(hostread.LookupWork); err != nil {
			return err
		}
		found, err := device.Lookup(device.Ptr(addr))
		if err != nil {
			return fielderr.New(fielderr.OpValidate, buffer(i), fielderr.Hex(addr), nil, err)
		}
		if !found.ID.Type.CPUAccessible() {
			return fielderr.Invalid(fielderr.OpValidate, buffer(i), fielderr.Hex(addr)+", memory of "+found.ID.String(), "memory that the CPU can access")
		}
	}
	for i := range n.Children {
		if err := v.probeCPUMemory(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return nil
}

// buffer returns the path of a buffer of a node.
func buffer(i int) string { return fmt.Sprintf("buffers[%d]", i) }

// checkRemote checks trees in memory that the CPU cannot access: that every buffer is memory of the
// declared device, and as large as the array requires; then the contents, in CPU memory.
func checkRemote(ctx context.Context, t *tree.Tree) error {
	p, err := newProber(ctx, t.At)
	if err != nil {
		return err
	}
	if err := probeEvent(t.At); err != nil {
		return fielderr.New(fielderr.OpValidate, "ArrowDeviceArray.sync_event", fielderr.Hex(t.At.Event), nil, err)
	}
	if err := t.Each(p.node); err != nil {
		return err
	}
	if err := t.At.Synchronize(ctx); err != nil {
		return err
	}
	return copyplan.EachOnHost(ctx, *t, p.memory, func(n *tree.Node) error {
		return fielderr.During(fielderr.OpValidate, p.contents(n))
	})
}

// probeEvent queries the event: only the driver can check it.
func probeEvent(at tree.Location) error {
	if at.Event == 0 {
		return nil
	}
	event, err := at.OpenEvent()
	if err != nil {
		return err
	}
	defer event.Close() // borrowed
	_, err = event.Query()
	return err
}

// prober asks a device about addresses.
type prober struct {
	device.Prober
	id device.ID
	*validator
}

func newProber(ctx context.Context, at tree.Location) (*prober, error) {
	dev, err := at.Device()
	if err != nil {
		return nil, fielderr.New(fielderr.OpValidate, "ArrowDeviceArray.device_type", at.ID.Type, "a device of this process (ValidateFull)", err)
	}
	asked, ok := dev.(device.Prober)
	if !ok {
		return nil, fielderr.New(fielderr.OpValidate, "ArrowDeviceArray.device_type", at.ID.Type, "a device that is a device.Prober (ValidateFull)", device.ErrNotSupported)
	}
	return &prober{asked, at.ID, newValidator(ctx)}, nil
}

// checkPinned checks trees in pinned or managed memory that the CPU can access: the sizes that
// follow from the structs before a buffer is read, then those that follow from the contents.
func checkPinned(ctx context.Context, t *tree.Tree) error {
	p, err := newProber(ctx, t.At)
	if err != nil {
		return err
	}
	if err := t.Each(p.node); err != nil {
		return err
	}
	if err := t.At.Synchronize(ctx); err != nil {
		return err
	}
	return t.Each(func(n *tree.Node) error {
		if err := p.sized(n); err != nil {
			return err
		}
		return fielderr.During(fielderr.OpValidate, p.contents(n))
	})
}

// sized checks the buffers whose size the last offset, or the sizes of a view array, determine: all
// of their bytes are read.
func (p *prober) sized(n *tree.Node) error {
	sizes, err := hostread.Sizes(p.sizes[:0], n, n.Storage())
	p.sizes = sizes
	if err != nil {
		return fielderr.During(fielderr.OpValidate, err)
	}
	for i, size := range sizes {
		if size == 0 || n.Length == 0 || n.Buffers[i] == 0 {
			continue
		}
		if err := p.memory(i, n.Buffers[i], size); err != nil {
			return err
		}
	}
	for i := range n.Children {
		if err := p.sized(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return nil
}

// node checks the buffers whose size follows from the structs alone.
func (p *prober) node(n *tree.Node) error {
	st := n.Storage()
	count := len(n.Buffers)
	if n.Layout.Kind == layout.View {
		count-- // the sizes are in host memory
	}
	for i, addr := range n.Buffers[:count] {
		size := layout.LeastSize(st, n.Layout, i, n.Offset+n.Length)
		if addr == 0 || n.Length == 0 || size == 0 && p.id.Type.CPUAccessible() { // in CPU memory, bridge.Zeros may replace NULL
			continue
		}
		if err := p.memory(i, addr, size); err != nil {
			return err
		}
	}
	for i := range n.Children {
		if err := p.node(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return nil
}

func (p *prober) memory(i int, addr uintptr, size int64) error {
	if err := p.Spend(hostread.LookupWork); err != nil {
		return err
	}
	found, err := p.Lookup(device.Ptr(addr))
	if err != nil {
		return fielderr.New(fielderr.OpValidate, buffer(i), fielderr.Hex(addr), nil, err)
	}
	if want, ok := p.accepts(found.ID); !ok {
		return fielderr.Invalid(fielderr.OpValidate, buffer(i), fielderr.Hex(addr)+", memory of "+found.ID.String(), want)
	}
	if found.Size == 0 && p.id.Type.CPUAccessible() {
		return nil // a driver may know that memory is pinned, but not its size
	}
	whole, err := tree.Allocated(p, found, device.Ptr(addr), size)
	if err != nil {
		return fielderr.New(fielderr.OpValidate, buffer(i), fielderr.Hex(addr), nil, err)
	}
	if !whole {
		return fielderr.Invalid(fielderr.OpValidate, buffer(i), fielderr.Hex(addr), fmt.Sprintf("an allocation with %d bytes from there", size))
	}
	return nil
}

// accepts reports whether the device that a driver found matches the declared one, and describes
// the latter. Pinned memory may be declared as managed and the reverse: the CPU and the GPU can
// access both, and producers confuse them. All GPUs can access pinned memory, so its ordinal is not
// compared.
func (p *prober) accepts(found device.ID) (want string, ok bool) {
	if !p.id.Type.CPUAccessible() {
		return "memory of " + p.id.String(), found == p.id
	}
	if found.Type == device.CPU || !found.Type.CPUAccessible() || tree.StreamType(found.Type) != tree.StreamType(p.id.Type) {
		return "memory that the CPU can access, page-locked or managed by a driver", false
	}
	managed := found.Type == device.CUDAManaged && p.id.Type == device.CUDAManaged
	return "memory of " + p.id.String(), !managed || p.id.Ordinal == device.NoOrdinal || found.Ordinal == p.id.Ordinal
}
