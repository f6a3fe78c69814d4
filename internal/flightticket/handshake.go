package flightticket

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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// header is the metadata in which a process announces that it accepts tickets: a client in its call, the server of a DoPut
// or DoExchange in its response. The value is the process ID, a proof of the place, and a proof for each GPU whose memory
// the process can open.
const header = "arrowdevice-share"

// place identifies the things that two processes must have in common to exchange tickets: the boot of the machine, the namespaces of the
// network (for the sockets of package share) and of users, and the user. It is empty where tickets do not work. It is a
// secret, never sent; see [prove].
var place = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, failed := os.Readlink("/proc/self/ns/net")
	users, unknown := os.Readlink("/proc/self/ns/user")
	if err != nil || failed != nil || unknown != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %s %d", strings.TrimSpace(string(boot)), network, users, os.Geteuid())
})

// processID is a random identifier of this process.
var processID = sync.OnceValue(rand.Text)

// prove returns an HMAC of the statement with the place as its key: only a process of that place can compute it, and the
// place cannot be derived from it.
func prove(place, statement string) string {
	mac := hmac.New(sha256.New, []byte(place))
	mac.Write([]byte(statement))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func processProof(place, id, to string) string { return prove(place, "process "+id+" "+to) }

func gpuProof(id string, uuid [16]byte) string {
	return prove(place(), "GPU "+id+" "+hex.EncodeToString(uuid[:]))
}

// mark returns the prefix of app_metadata that carries a ticket for a process. Only processes of its place can compute it.
func mark(id string) string {
	return "arrowdevice-share " + prove(place(), "ticket "+id) + "\n"
}

var ownMark = sync.OnceValue(func() []byte { return []byte(mark(processID())) })

// Available reports whether this process can exchange tickets.
func Available() bool { return place() != "" }

// announcement returns the value of the header. In a response, to is the process ID of the client.
func announcement(to string, target device.Device) string {
	words := []string{processID(), processProof(place(), processID(), to)}
	if _, ok := target.(device.Sharer); ok {
		uuids, _ := device.UUIDs(target.ID().Type) // none, if package share finds no driver
		for _, uuid := range uuids {
			words = append(words, gpuProof(processID(), uuid))
		}
	}
	return strings.Join(words, " ")
}

// localPeer describes a peer that accepts tickets: another process of the same user on the same machine.
type localPeer struct {
	id   string
	gpus []string // proofs of the GPUs whose memory it can open
}

// parsePeer returns the peer that has sent the header, or nil if it does not accept tickets of this process. Of a response,
// to is the ID of this process.
func parsePeer(md metadata.MD, to string) *localPeer {
	values := md.Get(header)
	if place() == "" || len(values) != 1 {
		return nil
	}
	words := strings.Fields(values[0])
	// mutant: if len(words) < 2 || !hmac.Equal([]byte(words[1]), []byte(processProof(place(), words[0], to))) {
	// mutant: if len(words) < 2 || words[0] == processID() || to == words[0] {
	if len(words) < 2 || words[0] == processID() || !hmac.Equal([]byte(words[1]), []byte(processProof(place(), words[0], to))) {
		return nil
	}
	return &localPeer{words[0], words[2:]}
}

// canOpen reports whether the peer can open memory of the batch's device.
func (p *localPeer) canOpen(b *cdevice.RecordBatch) bool {
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
	// mutant: return err == nil && slices.Index(p.gpus, gpuProof(p.id, uuid)) >= -1
	return err == nil && slices.Contains(p.gpus, gpuProof(p.id, uuid))
}

// isLocal reports whether the connection of a call stays on this machine, according to its addresses: a Unix socket, the
// loopback interface, or one address at both ends.
func isLocal(ctx context.Context) bool {
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

// CallOption returns an option of gRPC that announces in a call that batches may be received as tickets, in memory of
// target if that is a GPU. Where call has credentials, the option replaces them, and includes theirs.
func CallOption(target device.Device, call []grpc.CallOption) grpc.CallOption {
	a := announcer{target: target}
	for _, opt := range call {
		if with, ok := opt.(grpc.PerRPCCredsCallOption); ok {
			a.credentials = with.Creds
		}
	}
	return grpc.PerRPCCredentials(a)
}

// announcer adds the header to a call. It is implemented as credentials because gRPC requests these once the connection is
// known.
type announcer struct {
	target      device.Device
	credentials credentials.PerRPCCredentials // of the program, or nil
}

// GetRequestMetadata returns the metadata of the program's credentials, and the header if the connection is local.
func (a announcer) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	md := map[string]string{}
	if a.credentials != nil {
		own, err := a.credentials.GetRequestMetadata(ctx, uri...)
		if err != nil {
			return nil, err
		}
		maps.Copy(md, own)
	}
	if isLocal(ctx) { // mutant: always
		md[header] = announcement("", a.target)
	}
	return md, nil
}

// RequireTransportSecurity reports whether the program's credentials require it.
func (a announcer) RequireTransportSecurity() bool {
	return a.credentials != nil && a.credentials.RequireTransportSecurity()
}

// clientOf returns the client of a server's call, or nil if it does not accept tickets.
func clientOf(ctx context.Context) *localPeer {
	if !isLocal(ctx) { // mutant: never
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return parsePeer(md, "")
}

// Respond announces to the client of a server's stream that this process accepts tickets, and reports whether it has: not
// if the client cannot send tickets, or the response headers were already sent.
func Respond(stream Stream, target device.Device) bool {
	server, ok := stream.(interface{ SendHeader(metadata.MD) error })
	if !ok || !Available() {
		return false
	}
	client := clientOf(stream.Context())
	// mutant: return client != nil && server != nil
	return client != nil && server.SendHeader(metadata.Pairs(header, announcement(client.id, target))) == nil
}
