package share

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/hostfile"
)

// OpenOption is an option of [Open].
type OpenOption func(*openOptions)

type openOptions struct {
	firstError
	gone func()
	pins device.HostRegistrar // page-locks host memory; nil: none does
}

// WithOwnerGone calls f once, on a goroutine of its own, if the owner exits before the batch is released. Host memory
// stays valid; the contents of memory of a GPU are undefined from then on.
func WithOwnerGone(f func()) OpenOption {
	return func(o *openOptions) {
		if f == nil {
			o.fail(argument.Nil("share: Open: WithOwnerGone", "f", "a function"))
		}
		o.gone = f
	}
}

// WithPinnedMapping page-locks host memory in this process, for all its GPUs, so that they copy from it at full
// speed: the batch is device.CUDAHost memory of gpu. Without it, a batch of host memory is the CPU's, even if its owner
// has page-locked it, because page-locking applies to one process. Memory of a GPU needs none.
//
// The mapping is read-only. If gpu cannot page-lock such memory ([device.HostRegistrar]), Open returns an error
// that wraps device.ErrNotSupported before it connects to the owner. Open the ticket without the option then; copies
// go through staging memory. The last Release unlocks the memory once gpu has no pending work, and unmaps it.
func WithPinnedMapping(gpu device.Device) OpenOption {
	return func(o *openOptions) {
		r, err := hostfile.Registrar("share: Open: WithPinnedMapping", gpu)
		if err != nil {
			o.fail(err)
		}
		o.pins = r
	}
}

// Open returns a batch that another process shares, in the same memory. In memory of a GPU, it may have an event, which
// is complete when the owner's work is done. The caller owns the batch; its last Release closes the memory after the
// pending work of this process, and notifies the owner. Until then it uses a file descriptor and a goroutine.
//
// A program that opens memory of a GPU imports the backend of the GPU, memory/cudaalloc.
//
// A ticket that is invalid or cannot be opened is an error of this package, before memory is touched. A GPU that is not
// visible to this process is an error that wraps device.ErrNotSupported. Open waits at most fifteen seconds for the
// owner, or until ctx ends. The error of an owner that does not answer wraps os.ErrDeadlineExceeded or syscall.EAGAIN.
// If the memory cannot be opened, or ctx ends, the ticket can be opened again once the owner has been notified.
func Open(ctx context.Context, t Ticket, opts ...OpenOption) (*cdevice.RecordBatch, error) {
	if err := argument.Context("share: Open", ctx); err != nil {
		return nil, err
	}
	var o openOptions
	if err := argument.Apply("share: Open", &o, opts); err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, o.err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("share: Open: %w", err)
	}
	if errSystem != nil {
		return nil, fmt.Errorf("share: Open: %w", errSystem)
	}
	c, err := t.decode()
	if err != nil {
		return nil, err
	}
	if err := c.checkOwner(); err != nil {
		return nil, err
	}
	dev, err := c.device()
	if err != nil {
		return nil, err
	}
	m := &opened{dev: dev, last: failed}
	if err := m.choose(&o); err != nil {
		return nil, err
	}
	if m.conn, err = connect(ctx, t, c); err != nil {
		return nil, err
	}
	if err := m.openUntil(ctx, c); err != nil {
		return nil, err
	}
	go m.conn.watch(o.ownerGone)
	return m.batch(c)
}

// choose determines the GPU that opens the memory, or page-locks it.
func (m *opened) choose(o *openOptions) error {
	m.gpu, _ = m.dev.(device.Sharer)
	if m.gpu != nil || o.pins == nil {
		return nil
	}
	can, err := o.pins.RegistersReadOnly()
	if err != nil {
		return fmt.Errorf("share: Open: %w", err)
	}
	// mutant: if !can && m.gpu != nil {
	if !can {
		return fmt.Errorf("share: Open: WithPinnedMapping: %s cannot page-lock memory that is mapped read-only: %w; open the ticket without the option", o.pins.ID(), device.ErrNotSupported)
	}
	m.pins = o.pins
	if m.dev, err = o.pins.WithMemory(device.PinnedMemory); err != nil {
		return fmt.Errorf("share: Open: WithPinnedMapping: %w", err)
	}
	return nil
}

// ownerGone calls the function of WithOwnerGone, and recovers from its panic.
func (o *openOptions) ownerGone() {
	if o.gone == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			log.Printf("share: function of WithOwnerGone: panic: %v", p)
		}
	}()
	o.gone()
}

// checkOwner refuses tickets of other machines and of this process, and names of sockets that are not of this package.
func (c *content) checkOwner() error {
	here, err := bootID()
	if err != nil {
		return err
	}
	if c.boot != here { // mutant: never
		return fmt.Errorf("share: Open: boot_id %.40q, here %q: %w", c.boot, here, ErrOtherHost)
	}
	if network := namespace("net"); c.network != 0 && network != 0 && c.network != network { // mutant: never
		return fmt.Errorf("share: Open: %w", ErrOtherNetwork)
	}
	if c.process == thisProcess { // mutant: never
		return fmt.Errorf("share: Open: %w", ErrSameProcess)
	}
	if !isSocketName(c.socket) { // mutant: never
		return badTicket("socket", fmt.Sprintf("%.60q", c.socket), "a name that this package makes")
	}
	return nil
}

// inOtherPIDs reports whether this process and the owner are known to be in different PID namespaces.
func (c *content) inOtherPIDs() bool {
	here := namespace("pid")
	return c.pids != 0 && here != 0 && c.pids != here
}

// device returns the device of the memory.
func (c *content) device() (device.Device, error) {
	switch c.deviceType {
	case device.CPU:
		return device.CPUDevice(), nil
	case device.CUDA:
		return openGPU(c.uuid)
	}
	return nil, badTicket("device_type", c.deviceType, "the CPU or CUDA")
}

// openGPU returns the GPU with this UUID: ordinals differ between processes.
func openGPU(uuid []byte) (device.Device, error) {
	uuids, err := device.UUIDs(device.CUDA)
	if err != nil {
		return nil, fmt.Errorf("share: Open: %w", err)
	}
	for ordinal, known := range uuids {
		if string(known[:]) == string(uuid) {
			return device.Open(device.ID{Type: device.CUDA, Ordinal: int64(ordinal)})
		}
	}
	return nil, fmt.Errorf("share: Open: the memory belongs to GPU-%x, which is not visible to this process: %w", uuid, device.ErrNotSupported)
}

// opened is the memory of another process.
type opened struct {
	conn     *connection
	dev      device.Device
	gpu      device.Sharer        // whose memory it is; nil for host memory
	pins     device.HostRegistrar // page-locks host memory; nil: none does
	memories []device.Memory      // of gpu, or page-locked mappings
	mappings []mapping            // the mappings that are not page-locked
	event    device.Event
	starts   []device.Ptr // of the regions
	last     byte         // sent to the owner at the end
	left     atomic.Int64 // memories that are not closed
}

// openUntil decodes the rest of the ticket, and opens the memory. Driver calls can take seconds, since they pin gigabytes,
// and cannot be interrupted: memory that they open after the end of ctx is closed then.
func (m *opened) openUntil(ctx context.Context, c *content) error {
	done, open := make(chan error, 1), openRegions
	go func() {
		err := c.readRest()
		if err == nil {
			if err = open(m, ctx, c); err != nil {
				err = fmt.Errorf("share: Open: %w", err)
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			m.close()
		}
		return err
	case <-ctx.Done():
		go func() {
			<-done
			m.close() // mutant: deleted
		}()
		return fmt.Errorf("share: Open: %w", ctx.Err())
	}
}

// openRegions is replaced by tests.
var openRegions = (*opened).open

func (m *opened) open(ctx context.Context, c *content) error {
	if m.gpu == nil && len(m.conn.files) != len(c.regions) {
		return fmt.Errorf("the owner has sent %d files, want %d", len(m.conn.files), len(c.regions))
	}
	for i := range c.regions {
		err := ctx.Err()
		if err == nil {
			err = m.openRegion(ctx, c, i)
		}
		if err != nil {
			return fmt.Errorf("regions[%d]: %w", i, err)
		}
	}
	m.conn.closeFiles() // mutant: deleted
	if c.event == nil {
		return nil
	}
	if m.gpu == nil {
		return badTicket("event", "one", "none for host memory")
	}
	event, err := m.gpu.OpenEvent(*c.event)
	m.event = event
	return err
}

func (m *opened) openRegion(ctx context.Context, c *content, i int) error {
	r := c.regions[i]
	switch {
	case m.gpu == nil:
		file, err := mapFile(m.conn.files[i], r.size)
		if err != nil {
			return err
		}
		m.starts = append(m.starts, device.Ptr(file.address()))
		return m.keep(file)
	case r.handle == nil:
		return badTicket("handle", "none", "one for memory of a GPU")
	}
	// mutant: mem, err := m.gpu.OpenMemory(ctx, *r.handle, r.size, nil); if err == nil { defer m.ended() }
	mem, err := m.gpu.OpenMemory(ctx, *r.handle, r.size, m.ended)
	if err != nil && c.inOtherPIDs() {
		err = fmt.Errorf("%w; the owner is in another PID namespace, and CUDA IPC needs one for both (docker run --pid and --ipc container:NAME, or shareProcessNamespace of a pod)", err)
	}
	if err != nil {
		return err
	}
	m.starts = append(m.starts, mem.Ptr())
	m.keepMemory(mem)
	return nil
}

// keep keeps a mapping until close, and page-locks it if m.pins is set.
func (m *opened) keep(file mapping) error {
	if m.pins == nil {
		m.mappings = append(m.mappings, file)
		return nil
	}
	// mutant: mem, err := m.pins.RegisterMemory(device.Ptr(file.address()), int64(len(file)), false, func() {
	mem, err := m.pins.RegisterMemory(device.Ptr(file.address()), int64(len(file)), true, func() {
		file.end() // mutant: deleted
		m.ended()
	})
	if err != nil {
		file.end() // mutant: deleted
		return fmt.Errorf("page-lock: %w", err)
	}
	m.keepMemory(mem)
	return nil
}

// keepMemory keeps memory of the driver until close. The driver calls ended once it has closed the memory.
func (m *opened) keepMemory(mem device.Memory) {
	m.memories = append(m.memories, mem)
	m.left.Add(1)
}

// close closes the memory, after the last work of this process that uses it, and notifies the owner once all of it is closed.
func (m *opened) close() {
	m.left.Add(1)
	for _, file := range m.mappings {
		// mutant: _ = file
		file.end()
	}
	if m.event != nil && m.last == failed { // otherwise the batch has closed it
		_ = m.event.Close() // mutant: deleted
	}
	for _, mem := range m.memories {
		// mutant: _ = mem
		_ = mem.FreeAfter(nil) // the device retries what fails, and counts lost memory
	}
	m.ended()
}

// ended is called for each memory that is closed, and notifies the owner after the last one. Memory that the driver fails to
// close is retained until this process exits, also by the owner.
func (m *opened) ended() {
	if m.left.Add(-1) == 0 {
		m.conn.end(m.last)
	}
}

// batch makes a batch that owns the memory.
func (m *opened) batch(c *content) (*cdevice.RecordBatch, error) {
	columns := make([]cdevice.ArrayData, len(c.columns))
	for i := range columns {
		columns[i] = m.data(&c.columns[i])
	}
	b, err := cdevice.NewRecordBatch(m.dev, c.schema, c.rows, columns, cdevice.Lifetime{Ready: m.event, Release: m.close})
	if err != nil { // of arrays that do not fit their types
		return nil, fmt.Errorf("share: Open: %w: %w", err, ErrBadTicket)
	}
	m.last = released
	if c.metadata.Len() == 0 {
		return b, nil
	}
	defer b.Release()
	return b.WithMetadata(c.metadata), nil
}

func (m *opened) data(n *node) cdevice.ArrayData {
	d := cdevice.ArrayData{Length: n.length, NullCount: n.nulls, Offset: n.offset, ViewSizes: n.viewSizes}
	for _, p := range n.buffers {
		at := device.Ptr(0)
		if p.region > 0 {
			at = m.starts[p.region-1] + device.Ptr(p.offset)
		}
		d.Buffers = append(d.Buffers, at)
	}
	for i := range n.children {
		d.Children = append(d.Children, m.data(&n.children[i]))
	}
	if n.dictionary != nil {
		below := m.data(n.dictionary)
		d.Dictionary = &below
	}
	return d
}
