// Package ipcmessage checks the messages of Arrow IPC from a sender that is not trusted, before arrow-go reads them.
// arrow-go trusts metadata: one changed byte makes it panic, read elsewhere, or allocate gigabytes. arrow-go's allocations for a
// checked message are bounded by the size of the message, and by the limit of its decompressed size. [CheckTypes] checks what is sent.
package ipcmessage

import "encoding/binary"

// Kind is the type of a message, as Message.fbs numbers its headers.
type Kind byte

// The messages of a stream.
const (
	Schema          Kind = 1
	DictionaryBatch Kind = 2
	RecordBatch     Kind = 3
)

// KindOf returns the type of a message, or 0 if the metadata is none.
func KindOf(metadata []byte) Kind { return Kind(number[byte](newFlat(metadata).root(), 1)) }

// Checker checks the messages of one stream, in their order.
type Checker struct {
	plan *plan // nil before the schema
	max  int64 // bytes that a message may decompress to, and all dictionaries together
	// dictionaries are the bytes of each, with its deltas; a sender could send those without end.
	dictionaries map[int64]int64
	deltas       bool // there were some

	last batch // the one that was checked last, whose memory the next one uses
	tops []int // memory of batch
}

// unlimited is more than a process can address, and eight times that is still a number.
const unlimited = 1 << 50

// NewChecker returns a checker for a stream whose messages may decompress to limit bytes each.
func NewChecker(limit int) *Checker { return &Checker{max: min(int64(limit), unlimited)} }

// Deltas reports whether the stream had deltas of dictionaries.
func (c *Checker) Deltas() bool { return c.deltas }

// Message describes a checked message.
type Message struct {
	Kind  Kind
	ID    int64 // of a dictionary
	Delta bool  // of that dictionary
	Batch Batch // of a record batch
}

// Batch is what the metadata of a checked record batch say. The slices are valid until the next check.
type Batch struct {
	Rows           int64
	Nodes, Buffers []int64 // pairs: a length and a number of nulls; the place in the body, and a length
	Plain          bool    // the batch is neither compressed, nor has metadata of its own
}

// Check checks a message: its metadata, that it has its place in the stream, and that its buffers are in its body. An
// error is an [Error]; nothing must be read of the stream after one.
func (c *Checker) Check(metadata, body []byte) (m Message, err error) {
	f := newFlat(metadata)
	message := f.root()
	version := number[int16](message, 0)
	m.Kind = Kind(number[byte](message, 1))
	header, ok := message.table(2)
	if !ok {
		f.fail("a message without a header")
	}
	size := number[int64](message, 3)
	custom := message.keyValues(4)
	switch {
	case f.err != nil:
		return m, f.err
	case size < 0 || size > int64(len(body)): // mutant: never
		return m, Invalid("body", "%d bytes, but %d in the metadata", len(body), size)
	}
	err = c.header(&m, version, header, body)
	if err == nil && m.Kind == RecordBatch {
		m.Batch = Batch{c.last.rows, c.last.nodes, c.last.buffers, !c.last.compressed && custom == 0}
	}
	return m, err
}

func (c *Checker) header(m *Message, version int16, header table, body []byte) (err error) {
	switch {
	case m.Kind == Schema && c.plan != nil:
		return errMetadata("a second schema in the stream")
	case m.Kind == Schema:
		c.plan = readPlan(header)
		return header.f.err
	case c.plan == nil:
		return errMetadata("a message of type %d before the schema", m.Kind)
	case m.Kind == RecordBatch:
		_, err = c.batch("RecordBatch", header, c.plan.columns, version, body)
		return err
	case m.Kind == DictionaryBatch:
		return c.dictionary(m, header, body)
	}
	return errMetadata("a message of type %d", m.Kind)
}

// CheckSchema checks the first message of an IPC stream, in the framing of files and sockets: a schema, which is in the
// stream as a whole. arrow-go may then read it from there with ipc.NewReader.
func CheckSchema(stream []byte) error {
	b := stream
	if len(b) >= 4 && binary.LittleEndian.Uint32(b) == 0xffffffff {
		b = b[4:]
	}
	if len(b) < 4 {
		return Invalid("schema", "%d bytes", len(stream))
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n > int64(len(b)) {
		return Invalid("schema", "%d bytes of metadata, of which %d are there", n, len(b))
	}
	_, err := NewChecker(0).Check(b[:n], nil)
	return err
}
