package cdevice_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// FuzzImport reads its input as a program that corrupts a well-formed array: two
// bytes choose the array, and every four that follow are one step. Pointers may
// become NULL, point to another part of the array or one byte beside it, but
// never out of it.
//
// An import never panics, and releases its input once. An accepted array can be exported again;
// after full validation, it can be read.
func FuzzImport(f *testing.F) {
	earlier(f)
	for _, seed := range fuzzSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) < 2 {
			return
		}
		a := fuzzTargets.get(t, int(program[0]), int(program[1]))
		a.restore()
		nodes := a.nodes()
		steps := program[2:]
		for i := 0; i+4 <= len(steps) && i < 4*16; i += 4 {
			corrupt(a, nodes, steps[i], steps[i+1], steps[i+2], steps[i+3])
		}
		given := *a.device // all that an import writes to
		before := cdevice.ReadStats()
		_ = importAndUse(t, a, "structure", false)
		if a.tame() {
			*a.device = given
			clear(a.counts)
			_ = importAndUse(t, a, "full validation", true)
		}
		assert.Equal(t, before, cdevice.ReadStats(), "something is not released")
	})
}

// fuzzTargets are the arrays that programs corrupt, each made when it is first
// needed. Their C memory lives as long as the process.
var fuzzTargets targets

type targets struct {
	sync.Mutex
	made map[string]*foreignArray
}

func (s *targets) get(t testing.TB, which, how int) *foreignArray {
	all := cases.All()
	name := fmt.Sprintf("%s/%s", all[which%len(all)].Name, cases.Variants[how/2%len(cases.Variants)])
	w := []way{asArray, asBatch}[how%2]
	s.Lock()
	defer s.Unlock()
	key := name + "/" + string(w)
	if s.made[key] == nil {
		if s.made == nil {
			s.made = map[string]*foreignArray{}
		}
		s.made[key] = foreignCase(t, name, w)
	}
	return s.made[key]
}

func (f *foreignArray) nodes() []*foreignNode {
	var all []*foreignNode
	f.each(func(n *foreignNode) { all = append(all, n) })
	return all
}

var (
	// Lengths and offsets stay within the slack together, or are beyond any memory.
	fuzzLengths = []int64{math.MinInt64, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 31, 32, 63, 1 << 52, 1 << 62, math.MaxInt64 - 8, math.MaxInt64 - 1, math.MaxInt64}
	// Counts stay within the room behind every array of pointers, or are beyond.
	fuzzCounts = []int64{math.MinInt64, -1, 0, 1, 2, 3, 4, 5, room, 1 << 40, 1 << 62, math.MaxInt64}
	fuzzValues = []int64{math.MinInt64, math.MinInt32, -129, -128, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 24, 64, 127, 128, 255, 256, 4095, 4096, math.MaxInt16, math.MaxUint16, math.MaxInt32, math.MaxUint32, 1 << 47, math.MaxInt64}
	fuzzTypes  = []int32{1, 2, 3, 4, 11, 13, 17, 0, -1, math.MinInt32, math.MaxInt32}
)

func pick[T any](from []T, i byte) T { return from[int(i)%len(from)] }

// corrupt is one step of a program.
func corrupt(f *foreignArray, nodes []*foreignNode, op, which, x, y byte) {
	n, other := pick(nodes, which), pick(nodes, y)
	// address moves a pointer: to nothing, beside itself, or elsewhere.
	address := func(p *uintptr, elsewhere uintptr) {
		switch x % 3 {
		case 0:
			*p = 0
		case 1:
			if *p != 0 {
				*p |= 1
			}
		default:
			*p = elsewhere
		}
	}
	switch op % 16 {
	case 0, 1:
		n.Length = pick(fuzzLengths, x)
	case 2, 3:
		n.Offset = pick(fuzzLengths, x)
	case 4:
		n.NullCount = pick(fuzzLengths, x)
	case 5:
		n.NBuffers = pick(fuzzCounts, x)
	case 6:
		n.NChildren = pick(fuzzCounts, x)
	case 7:
		address(&n.Buffers, sliceAddress(other.pointers))
	case 8:
		address(&n.Children, sliceAddress(other.entries))
	case 9:
		address(&n.Dictionary, addressOf(other.ArrowArray))
	case 10:
		address(&n.entries[int(x/3)%room], addressOf(other.ArrowArray))
	case 11:
		address(&n.pointers[int(x/3)%room], pick(other.pointers[:room], x/3))
	case 12:
		n.Release = 0
	case 13:
		switch x % 4 {
		case 0:
			f.device.DeviceType = pick(fuzzTypes, y)
		case 1:
			f.device.DeviceID = pick(fuzzValues, y)
		case 2:
			f.device.SyncEvent = uintptr(y % 2) // misaligned: must not be read
		default:
			f.device.Reserved[0] = int64(y)
		}
	default:
		if guides := n.guides(); len(guides) > 0 {
			b := n.buffers[pick(guides, x)]
			write(b, int(x/8)%(len(b)-slack), 1<<(op/16%4), pick(fuzzValues, y))
		}
	}
}

// fuzzSeeds are every case, good and with one step each of another kind.
func fuzzSeeds() [][]byte {
	var seeds [][]byte
	for i := range cases.All() {
		c := byte(i)
		seeds = append(seeds, []byte{c, c % 2}, []byte{c, 1 - c%2, c % 16, c / 16, 1, 0})
	}
	return seeds
}
