//go:build linux

package share

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// Forged returns the ticket with another content and a checksum that fits.
func Forged(t Ticket, change func(*Forgery)) (Ticket, error) {
	c, err := t.decode()
	if err != nil {
		return nil, err
	}
	if err := c.readRest(); err != nil {
		return nil, err
	}
	f := Forgery{Network: &c.network, Boot: c.boot, Process: c.process, Socket: c.socket, UUID: c.uuid, Regions: len(c.regions)}
	if len(c.columns) > 0 {
		f.Offset = &c.columns[0].buffers[1].offset
		f.Length = &c.columns[0].length
		f.Region = &c.columns[0].buffers[1].region
	}
	change(&f)
	c.boot, c.process, c.socket, c.uuid = f.Boot, f.Process, f.Socket, f.UUID
	return c.encode()
}

// OpenHere is [Open] as if this process were another one than the owner's.
func OpenHere(ctx context.Context, t Ticket, opts ...OpenOption) (b *cdevice.RecordBatch, err error) {
	AsAnotherProcess(func() { b, err = Open(ctx, t, opts...) })
	return b, err
}

// AsAnotherProcess calls do as if this process were another one.
func AsAnotherProcess(do func()) {
	own := thisProcess
	thisProcess = id{}
	defer func() { thisProcess = own }()
	do()
}

// WithSlowOpening calls do while the driver takes until let to open memory. It calls begun when the driver has begun.
func WithSlowOpening(let <-chan struct{}, begun, do func()) {
	defer func(f func(*opened, context.Context, *content) error) { openRegions = f }(openRegions)
	openRegions = func(m *opened, _ context.Context, c *content) error {
		begun()
		<-let
		return m.open(context.Background(), c)
	}
	do()
}

// WithPatience calls do while strangers have an hour to say hello, where they are few. Nothing is shared before and after it.
func WithPatience(do func()) {
	defer func(h time.Duration) { awaitStrangers(); handshake = h }(handshake)
	handshake = time.Hour
	do()
}

// awaitStrangers returns when no stranger has a place, and reads how much time it has.
func awaitStrangers() {
	for range maxStrangers {
		owned.strangers <- struct{}{}
	}
	for range maxStrangers {
		<-owned.strangers
	}
}

// WithLittleTime calls do while strangers, owners and the dying have this much time. Nothing is shared before and after it.
func WithLittleTime(d time.Duration, do func()) {
	defer func(h, a, p time.Duration) {
		awaitStrangers()
		handshake, afterDeath, patience = h, a, p
	}(handshake, afterDeath, patience)
	handshake, afterDeath, patience = d, d, d
	do()
}

// Hello returns the socket of a ticket, and what an opener says there first.
func Hello(t Ticket) (socket string, hello []byte) {
	c, err := t.decode()
	if err != nil {
		panic(err)
	}
	digest := t.digest()
	return "@" + c.socket, append(append([]byte(helloText), c.token[:]...), digest[:]...)
}

// Forgery is what a test changes in a ticket.
type Forgery struct {
	Boot, Socket   string
	Process        [16]byte
	UUID           []byte
	Regions        int
	Offset, Length *int64
	Network        *uint64
	Region         *uint32
}

// Sealed returns the bytes with the checksum of a ticket.
func Sealed(b []byte) Ticket {
	sum := sha256.Sum256(b)
	return protofield.AppendBytes(b, fieldChecksum, sum[:])
}

// WithSchema returns a ticket with these bytes for its schema.
func WithSchema(schema []byte) Ticket {
	return Sealed(protofield.AppendBytes(protofield.AppendInt(nil, fieldVersion, version), fieldSchema, schema))
}

// SocketName is a name of a socket as the package makes it.
func SocketName(random [16]byte) string { return socketName(random) }

// WithColumns returns a ticket of a machine, with so many fields of one number in place of columns.
func WithColumns(boot string, n int, column []byte) Ticket {
	b := protofield.AppendBytes(protofield.AppendInt(nil, fieldVersion, version), fieldBoot, boot)
	for range n {
		b = protofield.AppendMessage(b, fieldColumn, column)
	}
	return Sealed(b)
}

// SchemaOf returns the schema of a ticket.
func SchemaOf(t Ticket) []byte {
	c := &content{}
	(&decoder{}).message(t[:len(t)-checksumSize], func(f protofield.Field) {
		if f.Number == fieldSchema {
			c.encoded = f.Bytes
		}
	})
	return c.encoded
}

// WithPairs returns a ticket with so many pairs of metadata.
func WithPairs(n int) Ticket {
	b := protofield.AppendInt(nil, fieldVersion, version)
	for range n {
		b = protofield.AppendMessage(b, fieldMetadata, nil)
	}
	return Sealed(b)
}

// Decode reads a ticket.
func Decode(t Ticket) error {
	c, err := t.decode()
	if err != nil {
		return err
	}
	return c.readRest()
}

// ThisProcess is the number of this process in its tickets.
var ThisProcess = thisProcess

// HelloSize is how many bytes an opener says first.
const HelloSize = helloSize

// MaxStrangers is how many connections may have said nothing.
const MaxStrangers = maxStrangers
