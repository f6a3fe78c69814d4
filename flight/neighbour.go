package flight

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// sharingHeader is the header in which an end that takes tickets says who it is: the client in its call, and
// the server of a DoPut or DoExchange in its answer.
const sharingHeader = "arrowdevice-share"

// answerTime is how long the first batch waits for the answer of a server, which need not send one before it has
// received something.
const answerTime = 100 * time.Millisecond

// self is what this process says of itself: boot, network, users and user, which must be those of the other
// end, and a random number. It is empty where there are no tickets.
var self = sync.OnceValue(func() []string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, failed := os.Readlink("/proc/self/ns/net") // of the sockets of package share
	users, unknown := os.Readlink("/proc/self/ns/user")
	var process [16]byte
	if _, none := rand.Read(process[:]); err != nil || failed != nil || unknown != nil || none != nil {
		return nil
	}
	return []string{"1", strings.TrimSpace(string(boot)), network, users, strconv.Itoa(os.Geteuid()), hex.EncodeToString(process[:])}
})

// takesTickets reports whether batches may be received as tickets.
func (o *options) takesTickets() bool { return o.sharing != nil && self() != nil }

// introduction is the header of an end that takes tickets: self, and the GPUs that it opens memory of.
func (o *options) introduction() string {
	all := self()
	if _, ok := o.dev.(*cudaalloc.Device); ok {
		infos, _ := cudaalloc.Devices() // none, if package share does not find the driver
		for _, info := range infos {
			all = append(all[:len(all):len(all)], hex.EncodeToString(info.UUID[:]))
		}
	}
	return strings.Join(all, " ")
}

// neighbour is the other end of a call, if it takes tickets: another process of this user on this machine.
type neighbour struct {
	process string
	gpus    []string // that it opens memory of
}

// neighbourOf reads the header of the other end. It returns nil for one that takes no tickets of this process.
func neighbourOf(md metadata.MD) *neighbour {
	own, said := self(), md.Get(sharingHeader)
	if own == nil || len(said) != 1 {
		return nil
	}
	words, last := strings.Fields(said[0]), len(own)-1
	if len(words) <= last || !slices.Equal(words[:last], own[:last]) || words[last] == own[last] {
		return nil
	}
	return &neighbour{words[last], words[last+1:]}
}

// opens reports whether the neighbour can open memory of the device that the batch is on.
func (n *neighbour) opens(b *cdevice.RecordBatch) bool {
	if b.DeviceID().Type != device.CUDA {
		return true
	}
	dev, err := b.Device()
	if err != nil {
		return false
	}
	gpu, ok := dev.(*cudaalloc.Device)
	if !ok {
		return false
	}
	uuid, err := gpu.UUID()
	return err == nil && slices.Contains(n.gpus, hex.EncodeToString(uuid[:]))
}

// asking adds the header of a call that takes tickets.
func (o *options) asking(ctx context.Context) context.Context {
	if !o.takesTickets() {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, sharingHeader, o.introduction())
}

// answering sends the header of the answer, if the client may send tickets, and reports whether it has: not
// if the server has sent its headers before.
func (o *options) answering(stream Stream) bool {
	server, ok := stream.(interface{ SendHeader(metadata.MD) error })
	if !ok || !o.takesTickets() {
		return false
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	return neighbourOf(md) != nil && server.SendHeader(metadata.Pairs(sharingHeader, o.introduction())) == nil
}

// otherEnd finds out who the other end of a stream is, for batches that are sent.
type otherEnd struct {
	found    atomic.Pointer[neighbour]
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
		md, _ := metadata.FromIncomingContext(stream.Context())
		e.found.Store(neighbourOf(md))
	case interface{ Header() (metadata.MD, error) }:
		e.answered = make(chan struct{})
		go func() {
			defer close(e.answered)
			if md, err := s.Header(); err == nil {
				e.found.Store(neighbourOf(md))
			}
		}()
	}
	return e
}

// neighbour returns the other end, or nil if it takes no tickets, or has not said so yet. The first call waits a
// moment for that.
func (e *otherEnd) neighbour(ctx context.Context) *neighbour {
	e.patience.Do(func() {
		if e.answered == nil {
			return
		}
		timer := time.NewTimer(answerTime)
		defer timer.Stop()
		select {
		case <-e.answered:
		case <-timer.C:
		case <-ctx.Done():
		}
	})
	return e.found.Load()
}
