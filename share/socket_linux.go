package share

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const supported = true

// Tests have other times.
var (
	// handshake is how long an opener may take to say hello, and hurry how long it may take while many do.
	handshake, hurry = 5 * time.Second, 200 * time.Millisecond
	// afterDeath is how long the system may take to end a process whose socket it has closed.
	afterDeath = 10 * time.Second
	// patience is how long an owner may take to answer, with strangers before the opener.
	patience = 15 * time.Second
)

const (
	// maxStrangers bounds the connections of this user that have not said hello. Half of them are many.
	maxStrangers = 256
	// maxFiles is how many descriptors one message takes (SCM_MAX_FD).
	maxFiles = 253
)

// thisProcess tells tickets of this process from others.
var thisProcess = func() (p id) {
	_, _ = rand.Read(p[:]) // it does not fail
	return p
}()

// bootID is the number of the machine that changes with each start of it.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("share: boot_id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// namespace is the number of a namespace of this process, or 0.
func namespace(kind string) uint64 {
	var info unix.Stat_t
	if unix.Stat("/proc/self/ns/"+kind, &info) != nil {
		return 0
	}
	return info.Ino
}

// status is the owner's answer.
type status byte

const (
	welcome status = iota + 1
	used
	changed
	otherUser
)

// hello is what an opener says: token and digest of its ticket, behind a text that no other protocol has.
const helloText = "arrowdevice share 1\n"

const helloSize = len(helloText) + len(id{}) + 32

// What an opener says at its end.
const (
	released = 'r'
	failed   = 'f' // it could not open the memory
)
