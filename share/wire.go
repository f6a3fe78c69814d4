package share

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arrowdevice/arrowdevice/device"
)

// The fields of ticket.proto.
const (
	fieldVersion protowire.Number = iota + 1
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
	maxTicket = 4 << 20 // bytes; a column of a primitive type takes some 30
	maxDepth  = 64      // of nested arrays
	maxGrowth = 8       // bytes of memory for each byte of a ticket: as many as an empty buffer takes
)

func appendBytes[T ~[]byte | ~string](b []byte, n protowire.Number, v T) []byte {
	b = protowire.AppendTag(b, n, protowire.BytesType)
	return protowire.AppendBytes(b, []byte(v))
}

func appendInt[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](b []byte, n protowire.Number, v T) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, n, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

// encode returns the ticket.
func (c *content) encode() (Ticket, error) {
	schema, err := encodeSchema(c.schema)
	if err != nil {
		return nil, err
	}
	b := appendInt(nil, fieldVersion, version)
	b = appendBytes(b, fieldBoot, c.boot)
	b = appendBytes(b, fieldProcess, c.process[:])
	b = appendBytes(b, fieldSocket, c.socket)
	b = appendBytes(b, fieldToken, c.token[:])
	b = appendInt(b, fieldDeviceType, c.deviceType)
	if c.uuid != nil {
		b = appendBytes(b, fieldUUID, c.uuid)
	}
	for _, r := range c.regions {
		var one []byte
		if r.handle != nil {
			one = appendBytes(one, 1, r.handle[:])
		}
		b = appendBytes(b, fieldRegion, appendInt(one, 2, r.size))
	}
	b = appendBytes(b, fieldSchema, schema)
	b = appendInt(b, fieldRows, c.rows)
	for i := range c.columns {
		b = appendBytes(b, fieldColumn, c.columns[i].encode())
	}
	if c.event != nil {
		b = appendBytes(b, fieldEvent, c.event[:])
	}
	for i, key := range c.metadata.Keys() {
		b = appendBytes(b, fieldMetadata, appendBytes(appendBytes(nil, 1, key), 2, c.metadata.Values()[i]))
	}
	b = appendInt(b, fieldNetwork, c.network)
	b = appendInt(b, fieldPIDs, c.pids)
	sum := sha256.Sum256(b)
	b = appendBytes(b, fieldChecksum, sum[:])
	if len(b) > maxTicket {
		return nil, fmt.Errorf("share: the ticket of the batch has %d bytes, want at most %d", len(b), maxTicket)
	}
	return b, nil
}

func (n *node) encode() []byte {
	b := appendInt(nil, 1, n.length)
	if n.nulls != 0 {
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeZigZag(n.nulls))
	}
	b = appendInt(b, 3, n.offset)
	for _, p := range n.buffers {
		b = appendBytes(b, 4, appendInt(appendInt(nil, 1, p.region), 2, p.offset))
	}
	if len(n.viewSizes) > 0 {
		var sizes []byte
		for _, s := range n.viewSizes {
			sizes = protowire.AppendVarint(sizes, uint64(s))
		}
		b = appendBytes(b, 5, sizes)
	}
	for i := range n.children {
		b = appendBytes(b, 6, n.children[i].encode())
	}
	if n.dictionary != nil {
		b = appendBytes(b, 7, n.dictionary.encode())
	}
	return b
}

// checksumSize is that of the last field.
const checksumSize = 2 + sha256.Size

// decode checks that a ticket is whole, and reads who its owner is: see [content.readRest].
func (t Ticket) decode() (*content, error) {
	if len(t) > maxTicket {
		return nil, badTicket("bytes", len(t), fmt.Sprintf("at most %d", maxTicket))
	}
	if len(t) < checksumSize {
		return nil, badTicket("bytes", len(t), "a whole ticket")
	}
	body, end := t[:len(t)-checksumSize], t[len(t)-checksumSize:]
	sum := sha256.Sum256(body)
	if !bytes.Equal(end, appendBytes(nil, fieldChecksum, sum[:])) {
		return nil, fmt.Errorf("share: ticket: checksum: the ticket was truncated or changed: %w", ErrBadTicket)
	}
	c := &content{rest: body}
	d := &decoder{}
	found := 0
	d.message(body, func(n protowire.Number, f field) {
		switch n {
		case fieldVersion:
			found = int(f.number)
		case fieldBoot:
			c.boot = string(f.bytes)
		case fieldProcess:
			d.fixed(c.process[:], f, "process")
		case fieldSocket:
			c.socket = string(f.bytes)
		case fieldToken:
			d.fixed(c.token[:], f, "token")
		case fieldDeviceType:
			c.deviceType = device.Type(f.number)
		case fieldUUID:
			c.uuid = make([]byte, 16)
			d.fixed(c.uuid, f, "device_uuid")
		case fieldNetwork:
			c.network = f.number
		case fieldPIDs:
			c.pids = f.number
		}
	})
	if found != version && (found != 0 || d.err == nil) {
		return nil, badTicket("version", found, version)
	}
	return c, d.err
}

// readRest reads what the ticket says of the batch, and checks it. The owner has said before that the ticket is its own.
func (c *content) readRest() error {
	d := &decoder{room: maxGrowth * len(c.rest)}
	c.regions = reserve[region](d, c.rest, fieldRegion)
	c.columns = reserve[node](d, c.rest, fieldColumn)
	keys, values := reserve[string](d, c.rest, fieldMetadata), reserve[string](d, c.rest, fieldMetadata)
	d.message(c.rest, func(n protowire.Number, f field) {
		switch n {
		case fieldRegion:
			d.in("regions", len(c.regions), func() { c.regions = append(c.regions, d.region(f)) })
		case fieldSchema:
			c.encoded = f.bytes
		case fieldRows:
			c.rows = int64(f.number)
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

func (d *decoder) region(f field) (r region) {
	d.message(f.bytes, func(n protowire.Number, f field) {
		switch n {
		case 1:
			r.handle = new(device.IPCHandle)
			d.fixed(r.handle[:], f, "handle")
		case 2:
			r.size = int64(f.number)
		}
	})
	if r.size <= 0 {
		d.fail("size", r.size, "at least 1")
	}
	return r
}

func (d *decoder) node(f field) (out node) {
	if len(d.at)-1 > maxDepth {
		d.fail("children", "nested too deeply", fmt.Sprintf("at most %d levels", maxDepth))
		return out
	}
	out.buffers, out.children = reserve[place](d, f.bytes, 4), reserve[node](d, f.bytes, 6)
	d.message(f.bytes, func(n protowire.Number, f field) {
		switch n {
		case 1:
			out.length = int64(f.number)
		case 2:
			out.nulls = protowire.DecodeZigZag(f.number)
		case 3:
			out.offset = int64(f.number)
		case 4:
			d.in("buffers", len(out.buffers), func() { out.buffers = append(out.buffers, d.place(f)) })
		case 5:
			out.viewSizes = d.numbers(f)
		case 6:
			d.in("children", len(out.children), func() { out.children = append(out.children, d.node(f)) })
		case 7:
			d.pay(1, unsafe.Sizeof(node{}))
			d.in("dictionary", -1, func() { below := d.node(f); out.dictionary = &below })
		}
	})
	return out
}

func (d *decoder) place(f field) (p place) {
	d.message(f.bytes, func(n protowire.Number, f field) {
		switch n {
		case 1:
			p.region = uint32(min(f.number, 1<<32-1))
		case 2:
			p.offset = int64(f.number)
		}
	})
	return p
}

func (d *decoder) numbers(f field) (list []int64) {
	n := 0
	for _, b := range f.bytes {
		if b < 0x80 { // the last byte of a number
			n++
		}
	}
	if !d.pay(n, unsafe.Sizeof(int64(0))) {
		return nil
	}
	list = make([]int64, 0, n)
	for b := f.bytes; len(b) > 0; {
		v, size := protowire.ConsumeVarint(b)
		if size < 0 {
			d.fail("view_sizes", protowire.ParseError(size), "numbers")
			return nil
		}
		list, b = append(list, int64(v)), b[size:]
	}
	return list
}

func (d *decoder) pair(f field) (key, value string) {
	d.message(f.bytes, func(n protowire.Number, f field) {
		switch n {
		case 1:
			key = string(f.bytes)
		case 2:
			value = string(f.bytes)
		}
	})
	return key, value
}
