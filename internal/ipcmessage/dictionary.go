package ipcmessage

import (
	"bytes"
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
)

// dictionary checks a batch of a dictionary.
func (c *Checker) dictionary(m *Message, header table, body []byte) error {
	m.ID, m.Delta = number[int64](header, 0), number[byte](header, 2) != 0
	data, ok := header.table(1)
	if !ok {
		header.f.fail("a dictionary without data")
	}
	values, ok := c.plan.dictionaries[m.ID]
	if !ok {
		header.f.fail("a dictionary %d that the schema does not have", m.ID)
	}
	if header.f.err != nil {
		return header.f.err
	}
	// arrow-go reads dictionaries as it did before version 5.
	size, err := c.batch("DictionaryBatch", data, []shape{values}, 0, body)
	if err != nil {
		return err
	}
	return c.grow(m.ID, m.Delta, size)
}

// grow counts the size of a dictionary, or of a delta once it is joined.
func (c *Checker) grow(id int64, delta bool, size int64) error {
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
	if total > c.max { // mutant: never
		return tooMuch("DictionaryBatch", "dictionaries of %d bytes with their deltas, of at most %d", total, c.max)
	}
	return nil
}

// valuesMessage is a message without anything but a record batch, at the end of which the message with that begins. Its
// version is 0: arrow-go reads dictionaries as it did before version 5.
var valuesMessage = []byte{
	16, 0, 0, 0, // 0: where the message is
	10, 0, 12, 0, 0, 0, 8, 0, 4, 0, 0, 0, // 4: its fields: no version, the type, the header
	12, 0, 0, 0, // 16: where its fields are described
	0, 0, 0, 0, // 20: the header
	byte(RecordBatch), 0, 0, 0, 0, 0, 0, 0, // 24: the type
}

// ValuesOf makes a message of a record batch from that of a dictionary, which was checked: its one column are the
// values. The body is the same. No byte that was checked is changed: hostile ones may have several meanings.
func ValuesOf(metadata []byte) ([]byte, error) {
	f := newFlat(metadata)
	header, _ := f.root().table(2)
	data, _ := header.table(1)
	b := append(bytes.Clone(valuesMessage), metadata...)
	const at = 20
	binary.LittleEndian.PutUint32(b[at:], uint32(len(valuesMessage)+data.at-at))
	return b, f.err
}

// Values returns for each dictionary of the stream the schema of a batch of its values, in the order of bytes of the
// stream. Dictionaries whose values have dictionaries are left out. The schema is the stream's, as arrow-go has read it.
func (c *Checker) Values(schema *arrow.Schema) map[int64]*arrow.Schema {
	found := map[int64]*arrow.Schema{}
	for i := range min(len(c.plan.columns), schema.NumFields()) {
		c.plan.values(c.plan.columns[i], schema.Field(i).Type, found)
	}
	return found
}
