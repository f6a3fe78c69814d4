package share

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// Ticket names a batch that a process shares. It is a message of protocol buffers, which ticket.proto in this
// folder describes, of some hundred bytes and some tens more for each buffer. Whoever has it can open the batch, if
// it belongs to the owner's user: a ticket is to be kept like a key.
type Ticket []byte

// version is that of the ticket and of what processes say to each other.
const version = 1

// id is a random number that nobody guesses.
type id [16]byte

const socketPrefix = "arrowdevice-"

func socketName(random id) string { return socketPrefix + hex.EncodeToString(random[:]) }

// isSocketName reports whether a name is as socketName makes it: a ticket must not make its opener talk to another program.
func isSocketName(name string) bool {
	random, err := hex.DecodeString(strings.TrimPrefix(name, socketPrefix))
	return err == nil && len(random) == len(id{}) && name == socketName(id(random))
}

// content is a ticket in Go.
type content struct {
	rest       []byte // that is not read
	boot       string
	process    id
	socket     string
	network    uint64 // namespaces of the owner, by inode number; 0: not known
	pids       uint64
	token      id
	deviceType device.Type
	uuid       []byte // of a GPU
	regions    []region
	encoded    []byte // schema
	schema     *arrow.Schema
	rows       int64
	columns    []node
	event      *device.IPCHandle
	metadata   arrow.Metadata
}

// region is an allocation that is shared as a whole.
type region struct {
	handle *device.IPCHandle // nil for host memory
	size   int64
}

// node is an array: cdevice.ArrayData with places in regions for addresses.
type node struct {
	length, nulls, offset int64
	buffers               []place
	viewSizes             []int64
	children              []node
	dictionary            *node
}

// place is a byte of a region. Region 0 is none: the address NULL.
type place struct {
	region uint32
	offset int64
}

// digest is what the opener says of the ticket that it has, and the owner compares.
func (t Ticket) digest() [sha256.Size]byte { return sha256.Sum256(t) }

// encodeSchema returns the schema as an Arrow IPC stream without batches.
func encodeSchema(s *arrow.Schema) (b []byte, err error) {
	defer recovered("encode the schema", &err)
	var out bytes.Buffer
	if err := ipc.NewWriter(&out, ipc.WithSchema(s)).Close(); err != nil {
		return nil, fmt.Errorf("share: encode the schema: %w", err)
	}
	return out.Bytes(), nil
}

// readSchema reads the schema, and checks the rest of the ticket by it.
func (c *content) readSchema() (err error) {
	defer recovered("decode the schema", &err)
	// mutant: never
	if err := ipcmessage.CheckSchema(c.encoded); err != nil { // arrow-go trusts the metadata that it reads
		return fmt.Errorf("share: ticket: schema: %w: %w", err, ErrBadTicket)
	}
	r, err := ipc.NewReader(bytes.NewReader(c.encoded))
	if err != nil {
		return fmt.Errorf("share: ticket: schema: %w: %w", err, ErrBadTicket)
	}
	defer r.Release()
	c.schema = r.Schema()
	return c.check()
}

// recovered makes an error of a panic of arrow-go's reader or writer.
func recovered(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("share: %s: %v: %w", what, p, ErrBadTicket)
	}
}

// check finds places that are not in their regions, and buffers that are too short there.
func (c *content) check() error {
	if len(c.columns) != c.schema.NumFields() {
		return badTicket("columns", len(c.columns), fmt.Sprintf("%d, as the schema has fields", c.schema.NumFields()))
	}
	at := make(path, 0, maxDepth)
	for i := range c.columns {
		if err := c.checkNode(&c.columns[i], c.schema.Field(i).Type, at.in("columns", i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *content) checkNode(n *node, dt arrow.DataType, at path) error {
	st, l := layout.Of(dt)
	end := n.offset + n.length
	if n.length < 0 || n.offset < 0 || end < 0 {
		return at.bad("length", n.length, "lengths and offsets from 0 on")
	}
	if l.Kind == layout.View && len(n.viewSizes) != max(len(n.buffers)-2, 0) {
		return at.bad("view_sizes", len(n.viewSizes), len(n.buffers)-2)
	}
	for i, p := range n.buffers {
		if p == (place{}) {
			continue
		}
		if p.region == 0 || int64(p.region) > int64(len(c.regions)) {
			return at.in("buffers", i).bad("region", p.region, fmt.Sprintf("1 to %d", len(c.regions)))
		}
		least, size := layout.LeastSize(st, l, i, end), c.regions[p.region-1].size
		if l.Kind == layout.View && i >= 2 {
			least = n.viewSizes[i-2]
		}
		if p.offset < 0 || p.offset > size || least < 0 || least > size-p.offset {
			return at.in("buffers", i).bad("offset", p.offset, fmt.Sprintf("%d bytes in the %d of the region", least, size))
		}
	}
	below := n.children
	if n.dictionary != nil {
		below = append([]node{*n.dictionary}, below...)
	}
	if want := l.ChildCount(st); len(below) != want {
		return at.bad("children", len(below), want)
	}
	for i := range below {
		if err := c.checkNode(&below[i], layout.ChildType(st, i), at.in("children", i)); err != nil {
			return err
		}
	}
	return nil
}
