// Package ledger reads the files that simulated drivers write with the option ledger=FOLDER:
// violations and live objects, as they were when the process ended.
package ledger

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Machine is the content of one file: a loaded copy of the driver in a process.
type Machine struct {
	Process int
	Program string // the name of its file, shortened

	Violations     []string // of each kind, with a count where there are several
	Repeated       int      // violations of these kinds, without the first of each
	MoreViolations int      // that are not in Violations, for want of room

	Leaks     []string // "cuMemAlloc: 4096 bytes at 0x... on device 0"
	MoreLeaks []More   // that are not in Leaks, for want of room

	Kept int // live objects that libraries keep in caches of their own
}

// More counts leaks that differ from one of them in address and size alone.
type More struct {
	Text  string // of the one; "" where they have nothing in common
	Count int
}

// CountViolations returns the number of violations, listed or not.
func (m Machine) CountViolations() int { return len(m.Violations) + m.Repeated + m.MoreViolations }

// CountLeaks returns the number of leaks, listed or not.
func (m Machine) CountLeaks() int {
	count := len(m.Leaks)
	for _, more := range m.MoreLeaks {
		count += more.Count
	}
	return count
}

// The layout is that of struct ledger in src/ledger.c.

const magic = "cudasim3"

const (
	textRoom = 1 << 20
	slotRoom = 1 << 14
	groups   = 1 << 8
)

type header struct {
	Magic      [8]byte
	Process    uint64
	Program    [64]byte
	Violations uint64
	Times      [100]uint64
	TextSize   uint64
	Slots      uint64
}

type slot struct {
	Used, Kept uint32
	Text       [504]byte
}

// group counts live objects that found no slot.
type group struct {
	Leaks, Kept uint64
	Text        [504]byte
}

// Read returns what the files of the folder have, in the order of the processes' numbers. A process
// that was ended while it made its file has done nothing else, and is not among them.
func Read(folder string) ([]Machine, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var machines []Machine
	for _, f := range files {
		path := filepath.Join(folder, f.Name())
		m, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if m != nil {
			machines = append(machines, *m)
		}
	}
	slices.SortStableFunc(machines, func(a, b Machine) int { return cmp.Compare(a.Process, b.Process) })
	return machines, nil
}

// read returns nil for a file that has no header yet.
func read(path string) (*Machine, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() == 0 {
		return nil, err
	}
	var h header
	if err := binary.Read(f, binary.NativeEndian, &h); err != nil {
		return nil, err
	}
	if string(h.Magic[:]) != magic {
		return nil, nil
	}
	if h.TextSize > textRoom || h.Slots > slotRoom {
		return nil, fmt.Errorf("not a ledger: %d bytes of text, %d slots", h.TextSize, h.Slots)
	}
	texts := io.NewSectionReader(f, int64(binary.Size(h)), int64(h.TextSize))
	slots := make([]slot, h.Slots)
	table := io.NewSectionReader(f, int64(binary.Size(h))+textRoom, int64(binary.Size(slots)))
	more := make([]group, groups)
	rest := io.NewSectionReader(f, int64(binary.Size(h))+textRoom+slotRoom*int64(binary.Size(slot{})), int64(binary.Size(more)))
	m := &Machine{Process: int(h.Process), Program: text(h.Program[:])}
	if err := m.readViolations(texts, h); err != nil {
		return nil, err
	}
	if err := binary.Read(table, binary.NativeEndian, slots); err != nil {
		return nil, err
	}
	if err := binary.Read(rest, binary.NativeEndian, more); err != nil {
		return nil, err
	}
	m.addLive(slots)
	m.addMore(more)
	return m, nil
}

func (m *Machine) readViolations(texts io.Reader, h header) error {
	all, err := io.ReadAll(texts)
	if err != nil {
		return err
	}
	for violation := range bytes.SplitSeq(bytes.TrimSuffix(all, []byte{0}), []byte{0}) {
		if len(violation) == 0 {
			continue
		}
		if len(m.Violations) == len(h.Times) {
			return fmt.Errorf("not a ledger: more than %d violations listed", len(h.Times))
		}
		kind, text := len(m.Violations), string(violation)
		if times := h.Times[kind]; times > 1 {
			m.Repeated += int(times) - 1
			text += fmt.Sprintf("; %d times", times)
		}
		m.Violations = append(m.Violations, text)
	}
	// A process that was ended meanwhile has written the text and not yet the counts.
	m.MoreViolations = max(0, int(h.Violations)-m.Repeated-len(m.Violations))
	return nil
}

func (m *Machine) addLive(slots []slot) {
	for _, s := range slots {
		switch {
		case s.Used == 0:
		case s.Kept != 0:
			m.Kept++
		default:
			m.Leaks = append(m.Leaks, text(s.Text[:]))
		}
	}
}

func (m *Machine) addMore(groups []group) {
	for _, g := range groups {
		m.Kept += int(g.Kept)
		if g.Leaks > 0 {
			m.MoreLeaks = append(m.MoreLeaks, More{text(g.Text[:]), int(g.Leaks)})
		}
	}
}

// text returns the C string in b.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
