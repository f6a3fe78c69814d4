package ipcmessage

import (
	"encoding/binary"
	"fmt"
)

// batch is the table of a record batch.
type batch struct {
	name       string // of errors
	rows       int64
	nodes      []int64 // pairs: a length, a number of nulls
	buffers    []int64 // pairs: an offset, a length
	variadic   []int64
	compressed bool
	zstd       bool // or lz4
}

// read reads the table, into the memory of the batch before it.
func (b *batch) read(name string, t table) error {
	b.name, b.rows = name, number[int64](t, 0)
	b.nodes, b.buffers, b.variadic = t.words(b.nodes, 1, 2), t.words(b.buffers, 2, 2), t.words(b.variadic, 4, 1)
	compression, compressed := t.table(3)
	b.compressed = compressed
	codec := number[byte](compression, 0)
	if codec > 1 {
		return Invalid(name+".compression", "codec %d, want 0 or 1", codec)
	}
	// mutant: b.zstd = codec > 1
	b.zstd = codec == 1
	return t.f.err
}

// invalid is an error about element i of a vector of the batch.
func (b *batch) invalid(vector string, i int, text string, args ...any) error {
	return Invalid(fmt.Sprintf("%s.%s[%d]", b.name, vector, i), text, args...)
}

// batch checks that a batch has the nodes and buffers of its columns. It returns how many bytes its arrays take.
func (c *Checker) batch(name string, t table, columns []shape, version int16, body []byte) (size int64, err error) {
	b := &c.last
	if err := b.read(name, t); err != nil {
		return 0, err
	}
	if b.rows < 0 || b.rows > c.maxLength() {
		return 0, tooMuch(name+".length", "%d, want at most %d", b.rows, c.maxLength())
	}
	for i, n := range b.variadic {
		if n < 0 || n > int64(len(b.buffers)/2) {
			return 0, b.invalid("variadicBufferCounts", i, "%d of %d buffers", n, len(b.buffers)/2)
		}
	}
	var want count
	tops := c.tops[:0] // the nodes of the columns
	for _, s := range columns {
		tops = append(tops, want.nodes)
		if err := want.add(s, version, b.variadic); err != nil {
			return 0, err
		}
	}
	c.tops = tops
	elements, err := b.checkNodes(want.nodes, c.maxLength())
	if err != nil {
		return 0, err
	}
	// The columns have the length of the batch, which arrow-go does not check where that is 0.
	for _, i := range tops {
		if length := b.nodes[2*i]; length != b.rows { // mutant: never
			return 0, b.invalid("nodes", i, "length %d, want %d as the batch", length, b.rows)
		}
	}
	decompressed, err := b.checkBuffers(want.buffers, body, c.max)
	return max(int64(len(body)), decompressed, elements/8), err
}

// maxLength is the number of elements whose bitmap fills the largest message. Arrays without buffers (of nulls,
// structs, lists of width 0) could have more, and hold a receiver up that validates or copies them.
func (c *Checker) maxLength() int64 { return 8 * c.max }

// checkNodes returns the number of elements of all arrays, or limit+1 if that is less.
func (b *batch) checkNodes(want int, limit int64) (elements int64, err error) {
	if n := len(b.nodes) / 2; n < want {
		return 0, Invalid(b.name+".nodes", "%d, want %d", n, want)
	}
	for i := range len(b.nodes) / 2 {
		switch length, nulls := b.nodes[2*i], b.nodes[2*i+1]; {
		// mutant: case length < 0:
		case length < 0 || nulls < 0 || nulls > length:
			return 0, b.invalid("nodes", i, "length %d with %d nulls", length, nulls)
		case length > limit:
			return 0, tooMuch(fmt.Sprintf("%s.nodes[%d]", b.name, i), "length %d, want at most %d", length, limit)
		default:
			elements = min(elements+length, limit+1)
		}
	}
	return elements, nil
}

// checkBuffers checks that the buffers are in the body, and returns the bytes that they say they decompress to.
func (b *batch) checkBuffers(want int, body []byte, limit int64) (total int64, err error) {
	if n := len(b.buffers) / 2; n < want {
		return 0, Invalid(b.name+".buffers", "%d, want %d", n, want)
	}
	for i := range len(b.buffers) / 2 {
		offset, length := b.buffers[2*i], b.buffers[2*i+1]
		switch {
		// mutant: case offset < 0 || length < 0:
		case offset < 0 || length < 0 || offset > int64(len(body)) || length > int64(len(body))-offset:
			return 0, b.invalid("buffers", i, "%d bytes at %d of a body of %d", length, offset, len(body))
		case offset%8 != 0:
			return 0, b.invalid("buffers", i, "at %d, which 8 does not divide", offset)
		case !b.compressed || length == 0:
			continue
		case length < 8:
			return 0, b.invalid("buffers", i, "%d compressed bytes, want 8 or more", length)
		}
		size := int64(binary.LittleEndian.Uint64(body[offset:]))
		// mutant: never
		// mutant: if total += max(size, 0); size < -1 || size > limit {
		if total += max(size, 0); size < -1 || size > limit || total > limit {
			return 0, tooMuch(fmt.Sprintf("%s.buffers[%d]", b.name, i), "%d bytes decompressed, of at most %d", size, limit)
		}
		if size < 0 || !b.zstd {
			continue
		}
		if w, most := window(body[offset+8:offset+length]), max(2*uint64(size), maxWindow); w > most {
			return 0, b.invalid("buffers", i, "a zstd window of %d bytes, want at most %d", w, most)
		}
	}
	return total, nil
}
