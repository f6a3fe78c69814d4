package copyplan

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ToHost returns copies of the tree's nodes as arrow-go's arrays, in one allocation of mem.
func ToHost(ctx context.Context, t tree.Tree, mem memory.Allocator, on device.Stream) ([]arrow.Array, error) {
	if err := fielderr.CheckContext(fielderr.OpCopy, ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cdevice: read: %w", err)
	}
	if err := checkOnStream(on, t.At, t.At); err != nil {
		return nil, err
	}
	if argument.IsNil(mem) {
		mem = memory.DefaultAllocator
	}
	if on != nil && t.At.CPUAccessible() {
		if err := on.Synchronize(ctx); err != nil {
			return nil, fmt.Errorf("cdevice: read: wait for the stream: %w", err)
		}
	}
	src, err := openSource(ctx, t, on)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	plans, err := src.Plan(true)
	if err != nil {
		return nil, err
	}
	laid := layBlock(plans)
	if err := checkAllocations(src.dev, laid); err != nil {
		return nil, err
	}
	to, err := allocateArrow(ctx, mem, laid.size)
	if err != nil {
		return nil, err
	}
	if err := fillHost(ctx, src, to, laid, on); err != nil {
		return nil, err
	}
	return buildArrays(to, laid, plans, t.Name)
}

// leastLookedUp is the size of a copy from which the device is asked about the memory: a multiple of what that takes.
const leastLookedUp = 1 << 30

// checkAllocations asks the device of a large copy for the allocations of its large parts. If a producer announced more
// than it has, that is an error here and not an allocation that ends the process, as in [readEnds]. dev is nil for memory
// that the CPU can access.
func checkAllocations(dev device.Device, l *blockLayout) error {
	asked, ok := dev.(device.Prober)
	if !ok || l.size < leastLookedUp {
		return nil
	}
	for _, p := range l.parts {
		if p.Made != nil || p.Size < leastRead {
			continue
		}
		found, err := asked.Lookup(device.Ptr(p.Addr))
		if err == nil && found.ID.Type != device.CPU && found.Size == 0 {
			continue // the driver knows the memory, and not how large it is
		}
		whole := false
		if err == nil {
			whole, err = tree.Allocated(asked, found, device.Ptr(p.Addr), p.Size)
		}
		if err != nil {
			return fmt.Errorf("cdevice: read: %w", err)
		}
		if !whole {
			return fielderr.Invalid(fielderr.OpRead, "buffer", fielderr.Hex(p.Addr), fmt.Sprintf("an allocation with %d bytes from there", p.Size))
		}
	}
	return nil
}

// fillHost copies the parts of the source to their positions in the buffer. It takes the buffer: after an error, it
// releases it when no copy writes to it any more.
func fillHost(ctx context.Context, s *source, to *memory.Buffer, l *blockLayout, on device.Stream) error {
	var fromDevice []device.Range
	err := memcopy.Guard(func() (err error) {
		fromDevice, err = fillFromHost(ctx, to.Bytes(), l, s.remote())
		return err
	})
	if err != nil {
		to.Release()
		return fmt.Errorf("cdevice: read: %w", err)
	}
	if len(fromDevice) == 0 {
		return nil
	}
	if err := download(ctx, s, fromDevice, to, on); err != nil {
		return fmt.Errorf("cdevice: copy from %s: %w", s.At.ID, err)
	}
	return nil
}

// fillFromHost copies the parts that the CPU can access, until ctx ends, and clears the bytes between parts. It returns the
// copies of the other parts: of all bytes of a remote source.
func fillFromHost(ctx context.Context, bytes []byte, l *blockLayout, remote bool) ([]device.Range, error) {
	var fromDevice copyRanges
	end := int64(0)
	base := abi.AddressOf(bytes)
	for i, p := range l.parts {
		clear(bytes[end:l.offsets[i]])
		end = l.offsets[i] + p.Size
		switch dst := bytes[l.offsets[i]:end]; {
		case p.Made != nil:
			copy(dst, p.Made)
		case p.Size == 0:
		case remote:
			fromDevice.add(base+uintptr(l.offsets[i]), p)
		default:
			if err := memcopy.Copy(base+uintptr(l.offsets[i]), p.Addr, p.Size, ctx.Err); err != nil {
				return nil, err
			}
		}
	}
	clear(bytes[end:])
	return fromDevice.list, nil
}

// arrays builds arrow-go's data from the parts in one buffer.
type arrays struct {
	buffer  *memory.Buffer
	layout  *blockLayout
	part    int
	buffers []*memory.Buffer // for the lists of buffers of all data: at most a part and a NULL each
	made    madeData         // of the array that is being made
}

func (a *arrays) array(t *Plan) (arr arrow.Array, err error) {
	a.made.buffers, a.made.data = a.made.buffers[:0], a.made.data[:0]
	data := a.data(t, &a.made)
	defer a.made.release()
	defer hostread.RecoverArrow(&err, a.made.abandon)
	return array.MakeFromData(data), nil
}

func (a *arrays) data(t *Plan, made *madeData) *array.Data {
	buffers := tree.Take(&a.buffers, len(t.Parts)+1)[:0]
	if !t.Layout.Validity {
		buffers = append(buffers, nil) // arrow-go keeps an entry for a bitmap that the type does not have
	}
	for k, p := range t.Parts {
		at := a.layout.offsets[a.part]
		a.part++
		if p.Size == 0 && t.isNoBitmap(k) {
			buffers = append(buffers, nil)
			continue
		}
		b := memory.SliceBuffer(a.buffer, int(at), int(p.Size))
		made.buffers = append(made.buffers, b)
		buffers = append(buffers, b)
	}
	children := make([]arrow.ArrayData, len(t.Children))
	for i := range t.Children {
		children[i] = a.data(&t.Children[i], made)
	}
	var data *array.Data
	if t.Layout.Kind == layout.Dictionary {
		data = array.NewDataWithDictionary(t.dtype, int(t.Length), buffers, int(t.nulls), 0, children[0].(*array.Data))
	} else {
		data = array.NewData(t.dtype, int(t.Length), buffers, children, int(t.nulls), 0)
	}
	made.data = append(made.data, data)
	return data
}

// buildArrays makes arrow-go's arrays of the parts in the buffer, which it takes.
func buildArrays(buffer *memory.Buffer, l *blockLayout, plans []Plan, name func(int) string) (out []arrow.Array, err error) {
	a := arrays{buffer: buffer, layout: l, buffers: make([]*memory.Buffer, len(l.parts)+l.nodes)}
	out = make([]arrow.Array, 0, len(plans))
	defer func() {
		if err != nil {
			hostread.ReleaseAll(out)
			out = nil
		}
		buffer.Release()
	}()
	for i := range plans {
		arr, err := a.array(&plans[i])
		if err != nil {
			return out, fielderr.Within(name(i), err)
		}
		out = append(out, arr)
	}
	return out, nil
}

// madeData holds the first reference of all data and buffers that are made for one array.
type madeData struct {
	buffers []*memory.Buffer
	data    []*array.Data
}

func (m *madeData) release() {
	for _, d := range m.data {
		d.Release()
	}
	for _, b := range m.buffers {
		b.Release()
	}
}

// abandon releases the buffers by force after a constructor of arrow-go has panicked, which keeps
// references to the data that no code can reach.
func (m *madeData) abandon() {
	for _, b := range m.buffers {
		b.Reset(nil) // releases the parent buffer
	}
	m.buffers, m.data = nil, nil
}
