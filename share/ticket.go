package share

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/endian"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// Ticket names a batch that a process shares. It is a protocol buffer message (ticket.proto in this directory) of a few
// hundred bytes, and a few tens more for each buffer. Each process of the owner's user that has the ticket can open the batch,
// so keep it secret.
type Ticket []byte

// version is that of the ticket and of the protocol between owner and opener.
const version = 1

// id is a random number that cannot be guessed.
type id [16]byte

const socketPrefix = "arrowdevice-"

func socketName(random id) string { return socketPrefix + hex.EncodeToString(random[:]) }

// isSocketName reports whether socketName could have made the name: a ticket must not make its opener connect to another
// program.
func isSocketName(name string) bool {
	random, err := hex.DecodeString(strings.TrimPrefix(name, socketPrefix))
	return err == nil && len(random) == len(id{}) && name == socketName(id(random))
}

// content is a decoded ticket.
type content struct {
	rest       []byte // not decoded yet
	boot       string
	process    id
	socket     string
	network    uint64 // of the owner, by inode number; 0: not known
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

// region is an allocation, which is shared as a whole.
type region struct {
	handle *device.IPCHandle // nil for host memory
	size   int64
}

// node describes an array as cdevice.ArrayData does, with places in regions instead of addresses.
type node struct {
	length, nulls, offset int64
	buffers               []place
	viewSizes             []int64
	children              []node
	dictionary            *node
}

// place is a byte of a region. Region 0 stands for the address NULL.
type place struct {
	region uint32
	offset int64
}

// digest identifies the whole ticket: the opener sends it, and the owner compares it.
func (t Ticket) digest() [sha256.Size]byte { return sha256.Sum256(t) }

// encodeSchema returns the schema as an Arrow IPC stream without batches.
func encodeSchema(s *arrow.Schema) (b []byte, err error) {
	defer recovered(typesOfSchema, arrow.ErrInvalid, &err)
	var out bytes.Buffer
	if err := ipc.NewWriter(&out, ipc.WithSchema(s)).Close(); err != nil {
		return nil, fmt.Errorf("share: encode the schema: %w", err)
	}
	return out.Bytes(), nil
}

// readSchema decodes the schema, and checks the arrays against it.
func (c *content) readSchema() (err error) {
	defer recovered("decode the schema", ErrBadTicket, &err)
	// mutant: never
	if err := ipcmessage.CheckSchema(c.encoded); err != nil { // arrow-go trusts the metadata
		return fmt.Errorf("share: ticket: schema: %w: %w", err, ErrBadTicket)
	}
	r, err := ipc.NewReader(bytes.NewReader(c.encoded), ipc.WithEnsureNativeEndian(false))
	if err != nil {
		return fmt.Errorf("share: ticket: schema: %w: %w", err, ErrBadTicket)
	}
	defer r.Release()
	c.schema = r.Schema()
	if e := c.schema.Endianness(); e != endian.NativeEndian {
		return badTicket("schema: endianness", e, endian.NativeEndian)
	}
	return c.check()
}

// typesOfSchema names in errors what panics if a method of an extension type of the program does.
const typesOfSchema = "Share: panic in a data type of the schema"

// recovered converts a panic of arrow-go's reader or writer, or of a data type, into an error that wraps kind.
func recovered(what string, kind error, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("share: %s: %v: %w", what, p, kind)
	}
}

// check returns an error for a place outside of its region, or a buffer that its region has no room for.
func (c *content) check() error {
	if len(c.columns) != c.schema.NumFields() {
		return badTicket("columns", len(c.columns), fmt.Sprintf("%d, one for each field of the schema", c.schema.NumFields()))
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
	below := len(n.children)
	if n.dictionary != nil {
		below++
	}
	if want := l.ChildCount(st); below != want {
		return at.bad("children", below, want)
	}
	for i := range n.children {
		if err := c.checkNode(&n.children[i], layout.ChildType(st, i), at.in("children", i)); err != nil {
			return err
		}
	}
	if n.dictionary != nil {
		return c.checkNode(n.dictionary, layout.ChildType(st, 0), at.in("dictionary", -1))
	}
	return nil
}
