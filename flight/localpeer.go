package flight

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// sharingHeader is the header in which an end that takes tickets proves where it is: the client in its call, and the
// server of a DoPut or DoExchange in its answer. Its words are the number of the process, a proof, and one for each GPU
// whose memory it opens.
const sharingHeader = "arrowdevice-share"

// answerTime is how long the first batch waits for the answer of a server, which need not send one before it has
// received something. Tests have more.
var answerTime = 100 * time.Millisecond

// place is what two processes have in common that pass tickets to each other: the boot of the machine, namespaces, and
// the user. It is empty where there are no tickets. It is told to no other process; see [prove].
var place = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, failed := os.Readlink("/proc/self/ns/net") // of the sockets of package share
	users, unknown := os.Readlink("/proc/self/ns/user")
	if err != nil || failed != nil || unknown != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %s %d", strings.TrimSpace(string(boot)), network, users, os.Geteuid())
})

// process is the number of this process, by which tickets to it are known.
var process = sync.OnceValue(func() string { return rand.Text() })

// prove returns a word that only a process of a place can say of what, and from which the place cannot be learned.
func prove(place, what string) string {
	mac := hmac.New(sha256.New, []byte(place))
	mac.Write([]byte(what))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// proof is prove for the place of this process.
func proof(what ...string) string { return prove(place(), strings.Join(what, " ")) }

// takesTickets reports whether batches may be received as tickets.
func (o *options) takesTickets() bool { return o.sharing != nil && place() != "" }

// introduction is the header of an end that takes tickets. That of an answer is for one process.
func (o *options) introduction(to string) string {
	words := []string{process(), proof("process", process(), to)}
	if _, ok := o.dev.(device.Sharer); ok {
		uuids, _ := device.UUIDs(o.dev.ID().Type) // none, if package share does not find the driver
		for _, uuid := range uuids {
			words = append(words, proofOfGPU(process(), uuid))
		}
	}
	return strings.Join(words, " ")
}

func proofOfGPU(process string, uuid [16]byte) string {
	return proof("GPU", process, hex.EncodeToString(uuid[:]))
}

// localPeer is the other end of a call, if it takes tickets: another process of this user on this machine.
type localPeer struct {
	process string
	gpus    []string // proofs of those that it opens memory of
}

// localPeerOf reads the header of the other end: of a call, or of an answer to a process. It returns nil for one that takes
// no tickets of this process.
func localPeerOf(md metadata.MD, to string) *localPeer {
	said := md.Get(sharingHeader)
	if place() == "" || len(said) != 1 {
		return nil
	}
	words := strings.Fields(said[0])
	// mutant: if len(words) < 2 || !hmac.Equal([]byte(words[1]), []byte(proof("process", words[0], to))) {
	// mutant: if len(words) < 2 || words[0] == process() || to == words[0] {
	if len(words) < 2 || words[0] == process() || !hmac.Equal([]byte(words[1]), []byte(proof("process", words[0], to))) {
		return nil
	}
	return &localPeer{words[0], words[2:]}
}

// staysHere reports whether the connection of a call does not leave this machine, as far as its addresses say: it is a Unix
// socket, or both ends are one address.
func staysHere(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	switch remote := p.Addr.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		local, ok := p.LocalAddr.(*net.TCPAddr)
		return remote.IP.IsLoopback() || ok && remote.IP.Equal(local.IP)
	}
	return false
}

// opens reports whether the other end can open memory of the device that the batch is on.
func (n *localPeer) opens(b *cdevice.RecordBatch) bool {
	if b.DeviceID().Type != device.CUDA {
		return true
	}
	dev, err := b.Device()
	if err != nil {
		return false
	}
	gpu, ok := dev.(device.Sharer)
	if !ok {
		return false
	}
	uuid, err := gpu.UUID()
	// mutant: return err == nil && slices.Index(n.gpus, proofOfGPU(n.process, uuid)) >= -1
	return err == nil && slices.Contains(n.gpus, proofOfGPU(n.process, uuid))
}

// asking are the options of a call that takes tickets.
func (o *options) asking() []grpc.CallOption {
	all := o.callOptions()
	if !o.takesTickets() {
		return all
	}
	own := introducing{o: o}
	for _, opt := range o.call {
		if with, ok := opt.(grpc.PerRPCCredsCallOption); ok {
			own.with = with.Creds
		}
	}
	return append(all, grpc.PerRPCCredentials(own))
}

// introducing adds the header to a call. It is credentials for grpc, which asks them once it has the connection.
type introducing struct {
	o    *options
	with credentials.PerRPCCredentials // of the program, or nil
}

// GetRequestMetadata returns the header, if the connection stays on this machine, and what the program's credentials say.
func (i introducing) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	md := map[string]string{}
	if i.with != nil {
		theirs, err := i.with.GetRequestMetadata(ctx, uri...)
		if err != nil {
			return nil, err
		}
		maps.Copy(md, theirs)
	}
	if staysHere(ctx) { // mutant: always
		md[sharingHeader] = i.o.introduction("")
	}
	return md, nil
}

// RequireTransportSecurity reports whether the program's credentials need it.
func (i introducing) RequireTransportSecurity() bool {
	return i.with != nil && i.with.RequireTransportSecurity()
}

// caller is the client of a server's call, or nil.
func caller(ctx context.Context) *localPeer {
	if !staysHere(ctx) { // mutant: never
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return localPeerOf(md, "")
}

// answering sends the header of the answer, if the client may send tickets, and reports whether it has: not
// if the server has sent its headers before.
func (o *options) answering(stream Stream) bool {
	server, ok := stream.(interface{ SendHeader(metadata.MD) error })
	if !ok || !o.takesTickets() {
		return false
	}
	client := caller(stream.Context())
	// mutant: return client != nil && server != nil
	return client != nil && server.SendHeader(metadata.Pairs(sharingHeader, o.introduction(client.process))) == nil
}

// otherEnd finds out who the other end of a stream is, for batches that are sent.
type otherEnd struct {
	found    atomic.Pointer[localPeer]
	answered chan struct{} // closed when it is known; nil: at once
	patience sync.Once
}

// otherEnd asks who the other end of a stream is. A server knows it from the call. A client's goroutine waits for the
// headers of the answer; it ends with the call.
func (o *options) otherEnd(stream Stream) *otherEnd {
	e := &otherEnd{}
	if !o.takesTickets() {
		return e
	}
	switch s := stream.(type) {
	case interface{ SetHeader(metadata.MD) error }:
		e.found.Store(caller(stream.Context()))
	case interface{ Header() (metadata.MD, error) }:
		e.answered = make(chan struct{})
		go func() {
			defer close(e.answered)
			if md, err := s.Header(); err == nil {
				e.found.Store(localPeerOf(md, process()))
			}
		}()
	}
	return e
}

// local returns the other end, or nil if it takes no tickets, or has not said so yet. The first call waits a
// moment for that.
func (e *otherEnd) local(ctx context.Context) *localPeer {
	e.patience.Do(func() {
		if e.answered == nil {
			return
		}
		timer := time.NewTimer(answerTime)
		defer timer.Stop()
		select {
		// mutant: default:
		case <-e.answered:
		case <-timer.C: // mutant: deleted
		case <-ctx.Done():
		}
	})
	return e.found.Load()
}
