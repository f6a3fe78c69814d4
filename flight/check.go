package flight

import (
	"encoding/binary"
	"fmt"
)

// The headers of Message.fbs.
const (
	headerSchema          = 1
	headerDictionaryBatch = 2
	headerRecordBatch     = 3
)

// checker checks the metadata of the messages of a stream before arrow-go reads it.
type checker struct {
	plan *plan // nil before the schema
	max  int   // bytes that a message may decompress to
	// dictionaries are the bytes of each, with its deltas; a peer could send those without end.
	dictionaries map[int64]int64
	kind         byte // of the last message
	deltas       bool // there were some
}

// check checks a message: its metadata, and that its buffers are in its body.
func (c *checker) check(metadata, body []byte) error {
	message, err := newFlat(metadata).root()
	if err != nil {
		return err
	}
	version, err := message.int16(0)
	if err != nil {
		return err
	}
	kind, err := message.byte(1)
	if err != nil {
		return err
	}
	header, ok, err := message.table(2)
	if err != nil {
		return err
	}
	if !ok {
		return errMetadata("a message without a header")
	}
	size, err := message.int64(3)
	if err != nil {
		return err
	}
	if size < 0 || size > int64(len(body)) {
		return invalid("FlightData.data_body", fmt.Sprintf("%d bytes, but %d in the metadata", len(body), size))
	}
	if err := message.keyValues(4); err != nil {
		return err
	}
	c.kind = kind
	return c.header(kind, version, header, body)
}

func (c *checker) header(kind byte, version int16, header table, body []byte) (err error) {
	switch {
	case kind == headerSchema && c.plan != nil:
		return errMetadata("a second schema in the stream")
	case kind == headerSchema:
		c.plan, err = readPlan(header)
		return err
	case c.plan == nil:
		return errMetadata("a message of type %d before the schema", kind)
	case kind == headerRecordBatch:
		return c.batch("RecordBatch", header, c.plan.columns, version, body)
	case kind == headerDictionaryBatch:
		return c.dictionary(header, body)
	}
	return errMetadata("a message of type %d", kind)
}

func (c *checker) dictionary(header table, body []byte) error {
	id, err := header.int64(0)
	if err != nil {
		return err
	}
	values, ok := c.plan.dictionaries[id]
	if !ok {
		return errMetadata("a dictionary %d that the schema does not have", id)
	}
	data, ok, err := header.table(1)
	if err != nil {
		return err
	}
	if !ok {
		return errMetadata("a dictionary without data")
	}
	delta, err := header.byte(2)
	if err != nil {
		return err
	}
	// arrow-go reads dictionaries as it did before version 5.
	if err := c.batch("DictionaryBatch", data, []shape{values}, 0, body); err != nil {
		return err
	}
	return c.grow(id, delta != 0, int64(len(body)))
}

// grow counts a dictionary, or a delta of it.
func (c *checker) grow(id int64, delta bool, size int64) error {
	if c.dictionaries == nil {
		c.dictionaries = map[int64]int64{}
	}
	c.deltas = c.deltas || delta
	if delta {
		size += c.dictionaries[id]
	}
	c.dictionaries[id] = size
	total := int64(0)
	for _, n := range c.dictionaries {
		total += n
	}
	if total > int64(c.max) {
		return invalid("DictionaryBatch", fmt.Sprintf("dictionaries of %d bytes with their deltas, of at most %d (WithMaxMessageSize)", total, c.max))
	}
	return nil
}

// batch checks that a batch has the nodes and buffers of its columns.
func (c *checker) batch(name string, t table, columns []shape, version int16, body []byte) error {
	rows, err := t.int64(0)
	if err != nil {
		return err
	}
	if rows < 0 || rows > c.maxLength() {
		return invalid(name+".length", fmt.Sprintf("%d, want at most %d: WithMaxMessageSize", rows, c.maxLength()))
	}
	variadic, err := t.variadic(name)
	if err != nil {
		return err
	}
	var want count
	tops := make([]int, len(columns)) // the nodes of the columns
	for i, s := range columns {
		tops[i] = want.nodes
		if err := want.add(s, version, variadic); err != nil {
			return err
		}
	}
	if err := t.nodes(name, want.nodes, c.maxLength()); err != nil {
		return err
	}
	if err := t.lengths(name, tops, rows); err != nil {
		return err
	}
	_, compressed, err := t.table(3)
	if err != nil {
		return err
	}
	return c.buffers(name, t, want.buffers, compressed, body)
}

// variadic returns the counts of variadic buffers. None is larger than the number of buffers.
func (t table) variadic(name string) ([]int64, error) {
	at, n, err := t.vector(4, 8)
	if err != nil {
		return nil, err
	}
	_, buffers, err := t.vector(2, 16)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, n)
	for i := range counts {
		counts[i] = int64(binary.LittleEndian.Uint64(t.f.b[at+8*i:]))
		if counts[i] < 0 || counts[i] > int64(buffers) {
			return nil, invalid(fmt.Sprintf("%s.variadicBufferCounts[%d]", name, i), fmt.Sprintf("%d of %d buffers", counts[i], buffers))
		}
	}
	return counts, nil
}

// pair returns the two numbers of element i of a vector of structs.
func (t table) pair(at, i int) (int64, int64) {
	b := t.f.b[at+16*i:]
	return int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
}

// maxLength is the number of elements whose bitmap fills the largest message. Arrays without buffers (of nulls,
// structs, lists of width 0) could have more, and hold a receiver up that validates or copies them.
func (c *checker) maxLength() int64 { return 8 * int64(c.max) }

func (t table) nodes(name string, want int, limit int64) error {
	at, n, err := t.vector(1, 16)
	if err != nil {
		return err
	}
	if n < want {
		return invalid(name+".nodes", fmt.Sprintf("%d, want %d", n, want))
	}
	for i := range n {
		switch length, nulls := t.pair(at, i); {
		case length < 0 || nulls < 0 || nulls > length:
			return invalid(fmt.Sprintf("%s.nodes[%d]", name, i), fmt.Sprintf("length %d with %d nulls", length, nulls))
		case length > limit:
			return invalid(fmt.Sprintf("%s.nodes[%d]", name, i), fmt.Sprintf("length %d, want at most %d: WithMaxMessageSize", length, limit))
		}
	}
	return nil
}

// lengths checks that the columns have the length of the batch, which arrow-go does not where that is 0.
func (t table) lengths(name string, tops []int, rows int64) error {
	at, _, err := t.vector(1, 16)
	if err != nil {
		return err
	}
	for _, i := range tops {
		if length, _ := t.pair(at, i); length != rows {
			return invalid(fmt.Sprintf("%s.nodes[%d]", name, i), fmt.Sprintf("length %d, want %d as the batch", length, rows))
		}
	}
	return nil
}

// buffers checks that the buffers are in the body, and what they say they decompress to.
func (c *checker) buffers(name string, t table, want int, compressed bool, body []byte) error {
	at, n, err := t.vector(2, 16)
	if err != nil {
		return err
	}
	if n < want {
		return invalid(name+".buffers", fmt.Sprintf("%d, want %d", n, want))
	}
	total := int64(0)
	for i := range n {
		offset, length := t.pair(at, i)
		field := func() string { return fmt.Sprintf("%s.buffers[%d]", name, i) }
		switch {
		case offset < 0 || length < 0 || offset > int64(len(body)) || length > int64(len(body))-offset:
			return invalid(field(), fmt.Sprintf("%d bytes at %d of a body of %d", length, offset, len(body)))
		case offset%8 != 0:
			return invalid(field(), fmt.Sprintf("at %d, which 8 does not divide", offset))
		case !compressed || length == 0:
			continue
		case length < 8:
			return invalid(field(), fmt.Sprintf("%d compressed bytes, want 8 or more", length))
		}
		size := int64(binary.LittleEndian.Uint64(body[offset:]))
		if total += max(size, 0); size < -1 || size > int64(c.max) || total > int64(c.max) {
			return invalid(field(), fmt.Sprintf("%d bytes decompressed, of at most %d (WithMaxMessageSize)", size, c.max))
		}
	}
	return nil
}

// checkSchema checks a schema as FlightInfo and SchemaResult have it: the first message of an IPC stream.
func checkSchema(b []byte) error {
	if len(b) >= 4 && binary.LittleEndian.Uint32(b) == 0xffffffff {
		b = b[4:]
	}
	if len(b) < 4 {
		return invalid("schema", fmt.Sprintf("%d bytes", len(b)))
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n > int64(len(b)) {
		return invalid("schema", fmt.Sprintf("%d bytes of metadata, of which %d are there", n, len(b)))
	}
	c := checker{}
	return c.check(b[:n], nil)
}
