package share

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// The fields of ticket.proto.
const (
	fieldVersion protofield.Number = iota + 1
	fieldBoot
	fieldProcess
	fieldSocket
	fieldToken
	fieldDeviceType
	fieldUUID
	fieldRegion
	fieldSchema
	fieldRows
	fieldColumn
	fieldEvent
	fieldMetadata
	fieldChecksum
	fieldNetwork
	fieldPIDs
)

const (
	maxTicket = 4 << 20 // bytes; a column of a primitive type takes about 30
	maxDepth  = 64      // of nested arrays
	maxGrowth = 8       // bytes of memory for each byte of a ticket, as an empty buffer takes
)

// encode returns the ticket.
func (c *content) encode() (Ticket, error) {
	schema, err := encodeSchema(c.schema)
	if err != nil {
		return nil, err
	}
	b := protofield.AppendInt(nil, fieldVersion, version)
	b = protofield.AppendBytes(b, fieldBoot, c.boot)
	b = protofield.AppendBytes(b, fieldProcess, c.process[:])
	b = protofield.AppendBytes(b, fieldSocket, c.socket)
	b = protofield.AppendBytes(b, fieldToken, c.token[:])
	b = protofield.AppendInt(b, fieldDeviceType, c.deviceType)
	if c.uuid != nil {
		b = protofield.AppendBytes(b, fieldUUID, c.uuid)
	}
	for _, r := range c.regions {
		var one []byte
		if r.handle != nil {
			one = protofield.AppendBytes(one, 1, r.handle[:])
		}
		b = protofield.AppendMessage(b, fieldRegion, protofield.AppendInt(one, 2, r.size))
	}
	b = protofield.AppendBytes(b, fieldSchema, schema)
	b = protofield.AppendInt(b, fieldRows, c.rows)
	for i := range c.columns {
		b = protofield.AppendMessage(b, fieldColumn, c.columns[i].encode())
	}
	if c.event != nil {
		b = protofield.AppendBytes(b, fieldEvent, c.event[:])
	}
	for i, key := range c.metadata.Keys() {
		b = protofield.AppendMessage(b, fieldMetadata, protofield.AppendBytes(protofield.AppendBytes(nil, 1, key), 2, c.metadata.Values()[i]))
	}
	b = protofield.AppendInt(b, fieldNetwork, c.network)
	b = protofield.AppendInt(b, fieldPIDs, c.pids)
	t := sealed(b)
	if len(t) > maxTicket {
		return nil, fmt.Errorf("share: the ticket of the batch has %d bytes, want at most %d", len(t), maxTicket)
	}
	return t, nil
}

// sealed appends the checksum to the fields of a ticket.
func sealed(fields []byte) Ticket {
	sum := sha256.Sum256(fields)
	return protofield.AppendBytes(fields, fieldChecksum, sum[:])
}

func (n *node) encode() []byte {
	b := protofield.AppendInt(nil, 1, n.length)
	b = protofield.AppendSint(b, 2, n.nulls)
	b = protofield.AppendInt(b, 3, n.offset)
	for _, p := range n.buffers {
		b = protofield.AppendMessage(b, 4, protofield.AppendInt(protofield.AppendInt(nil, 1, p.region), 2, p.offset))
	}
	b = protofield.AppendInts(b, 5, n.viewSizes)
	for i := range n.children {
		b = protofield.AppendMessage(b, 6, n.children[i].encode())
	}
	if n.dictionary != nil {
		b = protofield.AppendMessage(b, 7, n.dictionary.encode())
	}
	return b
}

// checksumSize is the size of the last field.
const checksumSize = 2 + sha256.Size

// decode checks that a ticket is complete, and decodes the fields about its owner. readRest decodes the others.
func (t Ticket) decode() (*content, error) {
	if len(t) > maxTicket {
		return nil, badTicket("bytes", len(t), fmt.Sprintf("at most %d", maxTicket))
	}
	if len(t) < checksumSize {
		return nil, badTicket("bytes", len(t), "a whole ticket")
	}
	body, end := t[:len(t)-checksumSize], t[len(t)-checksumSize:]
	sum := sha256.Sum256(body)
	if !bytes.Equal(end, protofield.AppendBytes(nil, fieldChecksum, sum[:])) {
		return nil, fmt.Errorf("share: ticket: checksum: the ticket was truncated or changed: %w", ErrBadTicket)
	}
	c := &content{rest: body}
	d := &decoder{}
	found := 0
	d.message(body, func(f protofield.Field) {
		switch f.Number {
		case fieldVersion:
			found = int(f.Int)
		case fieldBoot:
			c.boot = string(f.Bytes)
		case fieldProcess:
			d.fixed(c.process[:], f, "process")
		case fieldSocket:
			c.socket = string(f.Bytes)
		case fieldToken:
			d.fixed(c.token[:], f, "token")
		case fieldDeviceType:
			c.deviceType = device.Type(f.Int)
		case fieldUUID:
			c.uuid = make([]byte, 16)
			d.fixed(c.uuid, f, "device_uuid")
		case fieldNetwork:
			c.network = f.Int
		case fieldPIDs:
			c.pids = f.Int
		}
	})
	if found != version && (found != 0 || d.err == nil) {
		return nil, badTicket("version", found, version)
	}
	return c, d.err
}

// readRest decodes and checks the description of the batch, once the owner has confirmed the ticket.
func (c *content) readRest() error {
	d := &decoder{budget: protofield.Budget(maxGrowth * len(c.rest))}
	c.regions = listOf[region](d, c.rest, fieldRegion)
	c.columns = listOf[node](d, c.rest, fieldColumn)
	keys, values := listOf[string](d, c.rest, fieldMetadata), listOf[string](d, c.rest, fieldMetadata)
	d.message(c.rest, func(f protofield.Field) {
		switch f.Number {
		case fieldRegion:
			d.in("regions", len(c.regions), func() { c.regions = append(c.regions, d.region(f)) })
		case fieldSchema:
			c.encoded = f.Bytes
		case fieldRows:
			c.rows = int64(f.Int)
		case fieldColumn:
			d.in("columns", len(c.columns), func() { c.columns = append(c.columns, d.node(f)) })
		case fieldEvent:
			c.event = new(device.IPCHandle)
			d.fixed(c.event[:], f, "event")
		case fieldMetadata:
			d.in("metadata", len(keys), func() {
				key, value := d.pair(f)
				keys, values = append(keys, key), append(values, value)
			})
		}
	})
	if d.err != nil {
		return d.err
	}
	c.metadata = arrow.NewMetadata(keys, values)
	return c.readSchema()
}

func (d *decoder) region(f protofield.Field) (r region) {
	d.message(f.Bytes, func(f protofield.Field) {
		switch f.Number {
		case 1:
			r.handle = new(device.IPCHandle)
			d.fixed(r.handle[:], f, "handle")
		case 2:
			r.size = int64(f.Int)
		}
	})
	if r.size <= 0 {
		d.fail("size", r.size, "at least 1")
	}
	return r
}

func (d *decoder) node(f protofield.Field) (out node) {
	if len(d.at)-1 > maxDepth {
		d.fail("children", "nested too deeply", fmt.Sprintf("at most %d levels", maxDepth))
		return out
	}
	out.buffers, out.children = listOf[place](d, f.Bytes, 4), listOf[node](d, f.Bytes, 6)
	d.message(f.Bytes, func(f protofield.Field) {
		switch f.Number {
		case 1:
			out.length = int64(f.Int)
		case 2:
			out.nulls = f.Sint()
		case 3:
			out.offset = int64(f.Int)
		case 4:
			d.in("buffers", len(out.buffers), func() { out.buffers = append(out.buffers, d.place(f)) })
		case 5:
			d.in("view_sizes", -1, func() { out.viewSizes = d.ints(out.viewSizes, f) })
		case 6:
			d.in("children", len(out.children), func() { out.children = append(out.children, d.node(f)) })
		case 7:
			d.check(d.budget.Spend(1, unsafe.Sizeof(node{})))
			d.in("dictionary", -1, func() { below := d.node(f); out.dictionary = &below })
		}
	})
	return out
}

func (d *decoder) place(f protofield.Field) (p place) {
	d.message(f.Bytes, func(f protofield.Field) {
		switch f.Number {
		case 1:
			p.region = uint32(min(f.Int, 1<<32-1))
		case 2:
			p.offset = int64(f.Int)
		}
	})
	return p
}

func (d *decoder) ints(list []int64, f protofield.Field) []int64 {
	list, err := f.AppendTo(list, &d.budget)
	d.check(err)
	return list
}

func (d *decoder) pair(f protofield.Field) (key, value string) {
	d.message(f.Bytes, func(f protofield.Field) {
		switch f.Number {
		case 1:
			key = string(f.Bytes)
		case 2:
			value = string(f.Bytes)
		}
	})
	return key, value
}
