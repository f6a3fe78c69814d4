package share

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errSystem is nil: the package works on this system.
var errSystem error

// The timeouts, which tests change.
var (
	// An opener must send its request within handshakeTimeout, or within busyTimeout while many connections are pending.
	handshakeTimeout, busyTimeout = 5 * time.Second, 200 * time.Millisecond
	// exitTimeout bounds the wait for the exit of a process whose socket the system has closed.
	exitTimeout = 10 * time.Second
	// answerTimeout bounds the wait for an owner, which may have pending connections to serve first.
	answerTimeout = 15 * time.Second
)

const (
	// maxPending bounds the connections of the same user whose handshake is not complete. Above half of it, many are pending.
	maxPending = 256
	// maxFiles is the number of descriptors that one message can carry (SCM_MAX_FD).
	maxFiles = 253
)

// thisProcess identifies the tickets of this process.
var thisProcess = func() (p id) {
	_, _ = rand.Read(p[:]) // never fails
	return p
}()

// bootID returns the identity of this boot of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("share: boot_id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// namespace returns the inode number of a namespace of this process, or 0 if it is not known.
func namespace(kind string) uint64 {
	var info unix.Stat_t
	if unix.Stat("/proc/self/ns/"+kind, &info) != nil {
		return 0
	}
	return info.Ino
}

// status is the owner's reply to a request.
type status byte

const (
	accepted status = iota + 1
	exhausted
	mismatched
	otherUser
)

// A request is this text, which no other protocol uses, then the token and the digest of the ticket.
const requestText = "arrowdevice share 1\n"

const requestSize = len(requestText) + len(id{}) + 32

func requestFor(t Ticket, c *content) []byte {
	digest := t.digest()
	return slices.Concat([]byte(requestText), c.token[:], digest[:])
}

// The byte that an opener sends before it closes the connection.
const (
	released = 'r'
	failed   = 'f' // the memory could not be opened
)
