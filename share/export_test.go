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

// WithSlowOpening calls do while the driver opens no memory until let is closed. It calls begun when the driver is called.
func WithSlowOpening(let <-chan struct{}, begun, do func()) {
	defer func(f func(*opened, context.Context, *content) error) { openRegions = f }(openRegions)
	openRegions = func(m *opened, _ context.Context, c *content) error {
		begun()
		<-let
		return m.open(context.Background(), c)
	}
	do()
}

// WithLongHandshake calls do while an opener has an hour to send its request, unless many are pending. Nothing is shared before
// and after it.
func WithLongHandshake(do func()) {
	defer func(h time.Duration) { awaitNoPending(); handshakeTimeout = h }(handshakeTimeout)
	handshakeTimeout = time.Hour
	do()
}

// awaitNoPending returns when no connection is pending, and so none reads the timeouts.
func awaitNoPending() {
	for range maxPending {
		owned.pending <- struct{}{}
	}
	for range maxPending {
		<-owned.pending
	}
}

// WithTimeouts calls do with this timeout for handshakes, replies and exits. Nothing is shared before and after it.
func WithTimeouts(d time.Duration, do func()) {
	defer func(h, a, p time.Duration) {
		awaitNoPending()
		handshakeTimeout, exitTimeout, answerTimeout = h, a, p
	}(handshakeTimeout, exitTimeout, answerTimeout)
	handshakeTimeout, exitTimeout, answerTimeout = d, d, d
	do()
}

// RequestOf returns the socket of a ticket, and the request that an opener sends there.
func RequestOf(t Ticket) (socket string, request []byte) {
	c, err := t.decode()
	if err != nil {
		panic(err)
	}
	digest := t.digest()
	return "@" + c.socket, append(append([]byte(requestText), c.token[:]...), digest[:]...)
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

// ThisProcess identifies this process in its tickets.
var ThisProcess = thisProcess

// RequestSize is the number of bytes of a request.
const RequestSize = requestSize

// MaxPending is the number of connections whose handshake may be incomplete.
const MaxPending = maxPending
