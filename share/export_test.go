//go:build linux

package share

import (
	"crypto/sha256"
)

// Forged returns the ticket with another content and a checksum that fits.
func Forged(t Ticket, change func(*Forgery)) (Ticket, error) {
	c, err := t.decode()
	if err != nil {
		return nil, err
	}
	if err := c.readSchema(); err != nil {
		return nil, err
	}
	f := Forgery{Boot: c.boot, Process: c.process, Socket: c.socket, UUID: c.uuid, Regions: len(c.regions)}
	if len(c.columns) > 0 {
		f.Offset = &c.columns[0].buffers[1].offset
		f.Length = &c.columns[0].length
		f.Region = &c.columns[0].buffers[1].region
	}
	change(&f)
	c.boot, c.process, c.socket, c.uuid = f.Boot, f.Process, f.Socket, f.UUID
	return c.encode()
}

// Forgery is what a test changes in a ticket.
type Forgery struct {
	Boot, Socket   string
	Process        [16]byte
	UUID           []byte
	Regions        int
	Offset, Length *int64
	Region         *uint32
}

// Sealed returns the bytes with the checksum of a ticket.
func Sealed(b []byte) Ticket {
	sum := sha256.Sum256(b)
	return appendBytes(b, fieldChecksum, sum[:])
}

// WithSchema returns a ticket with these bytes for its schema.
func WithSchema(schema []byte) Ticket {
	return Sealed(appendBytes(appendInt(nil, fieldVersion, version), fieldSchema, schema))
}

// WithPairs returns a ticket with so many pairs of metadata.
func WithPairs(n int) Ticket {
	b := appendInt(nil, fieldVersion, version)
	for range n {
		b = appendBytes(b, fieldMetadata, nil2)
	}
	return Sealed(b)
}

var nil2 []byte

// Decode reads a ticket.
func Decode(t Ticket) error {
	c, err := t.decode()
	if err != nil {
		return err
	}
	return c.readSchema()
}

// ThisProcess is the number of this process in its tickets.
var ThisProcess = thisProcess

// Hello is what an opener of the ticket says first.
func Hello(t Ticket) []byte {
	c, err := t.decode()
	if err != nil {
		panic(err)
	}
	digest := t.digest()
	return append(append([]byte(helloText), c.token[:]...), digest[:]...)
}

// HelloSize is how many bytes an opener says first.
const HelloSize = helloSize

// MaxStrangers is how many connections may have said nothing.
const MaxStrangers = maxStrangers
