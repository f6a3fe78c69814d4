package schema

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Metadata in C is a count of pairs, then for each pair the key and the value,
// each preceded by its length. The count and the lengths are int32 in native
// byte order; the total length is not stored.

// pairs is arrow.Metadata that can be edited without copying the original.
type pairs struct{ keys, values []string }

func pairsOf(md arrow.Metadata) pairs { return pairs{md.Keys(), md.Values()} }

// check returns an error for metadata that C cannot hold, or that readers refuse.
func (p pairs) check() error {
	if len(p.keys) > maxPairs {
		return invalid(".metadata.n", len(p.keys), fewPairs)
	}
	return nil
}

// size returns the number of bytes of the encoded metadata.
func (p *pairs) size() int {
	if len(p.keys) == 0 {
		return 0 // a NULL pointer
	}
	n := 4
	for i, k := range p.keys {
		n += 8 + len(k) + len(p.values[i])
	}
	return n
}

// appendTo appends the encoded metadata.
func (p pairs) appendTo(b []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(len(p.keys)))
	for i, k := range p.keys {
		b = binary.NativeEndian.AppendUint32(b, uint32(len(k)))
		b = append(b, k...)
		b = binary.NativeEndian.AppendUint32(b, uint32(len(p.values[i])))
		b = append(b, p.values[i]...)
	}
	return b
}

// readMetadata copies the metadata at a C address. It subtracts each length from limit first, so
// that a garbage length is refused before anything is read.
func readMetadata(addr uintptr, limit *int) (arrow.Metadata, error) {
	if addr == 0 {
		return arrow.Metadata{}, nil
	}
	p, err := readPairs(addr, limit)
	if err != nil {
		return arrow.Metadata{}, under(".metadata", err)
	}
	return arrow.NewMetadata(p.keys, p.values), nil
}

func readPairs(addr uintptr, limit *int) (p pairs, err error) {
	r := metadataReader{addr, limit}
	n := r.int32()
	if n < 0 || n > maxPairs {
		return pairs{}, invalid(".n", n, fewPairs)
	}
	for i := range n {
		key, err := r.string()
		if err != nil {
			return pairs{}, under(fmt.Sprintf(".keys[%d]", i), err)
		}
		value, err := r.string()
		if err != nil {
			return pairs{}, under(fmt.Sprintf(".values[%d]", i), err)
		}
		p.keys, p.values = append(p.keys, key), append(p.values, value)
	}
	return p, nil
}

// ReadMetadata copies the metadata at a C address that is not part of a schema; NULL is empty. An
// error names the given field.
func ReadMetadata(field string, addr uintptr) (arrow.Metadata, error) {
	if addr == 0 {
		return arrow.Metadata{}, nil
	}
	limit := maxText
	p, err := readPairs(addr, &limit)
	if err != nil {
		return arrow.Metadata{}, ofField(field, fielderr.OpImport, err)
	}
	return arrow.NewMetadata(p.keys, p.values), nil
}

// AppendMetadata appends the encoded metadata to b: nothing if it is empty, which C passes as NULL.
// An error names the given field.
func AppendMetadata(b []byte, field string, md arrow.Metadata) ([]byte, error) {
	p := pairsOf(md)
	size := p.size()
	if size == 0 {
		return b, nil
	}
	if len(p.keys) > maxPairs {
		return b, ofField(field, fielderr.OpExport, invalid(".n", len(p.keys), fewPairs))
	}
	if size > maxText {
		return b, ofField(field, fielderr.OpExport, invalid("", nil, littleText))
	}
	return p.appendTo(b), nil
}

type metadataReader struct {
	addr  uintptr
	limit *int
}

func (r *metadataReader) int32() int {
	n := int32(binary.NativeEndian.Uint32(abi.Slice[byte](r.addr, 4)))
	r.addr += 4
	*r.limit -= 4
	return int(n)
}

func (r *metadataReader) string() (string, error) {
	n := r.int32()
	if n < 0 {
		return "", invalid(".length", n, fielderr.Text("at least 0"))
	}
	if n > *r.limit {
		return "", invalid(".length", n, littleText)
	}
	*r.limit -= n
	s := string(abi.Slice[byte](r.addr, n))
	r.addr += uintptr(n)
	return s, nil
}

// The metadata keys that make a field one of an extension type.
const (
	extensionName     = "ARROW:extension:name"
	extensionMetadata = "ARROW:extension:metadata"
)

// withoutExtension returns the metadata without the keys of an extension type.
func (p pairs) withoutExtension() pairs {
	var rest pairs
	for i, k := range p.keys {
		if k != extensionName && k != extensionMetadata {
			rest.keys, rest.values = append(rest.keys, k), append(rest.values, p.values[i])
		}
	}
	return rest
}

// withExtension returns the metadata with the keys of an extension type at its end.
func (p pairs) withExtension(name, data string) pairs {
	rest := p.withoutExtension()
	rest.keys = append(rest.keys, extensionName, extensionMetadata)
	rest.values = append(rest.values, name, data)
	return rest
}
