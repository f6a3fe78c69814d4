package bandwidth

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Default sizes; a simulated machine has fewer, because it copies with the CPU.
const (
	DefaultSizes   = "64K,256K,1M,4M,16M,64M,256M,1G"
	SimulatedSizes = "64K,256K,1M,4M"
)

// elementBytes is the size of an element of a column that is copied.
const elementBytes = 8

// ParseSizes parses sizes that are separated by commas: 4096, 64K, 1M, 1GiB. K is 1024.
func ParseSizes(text string) (sizes []int64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		size, err := parseSize(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

func parseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "KMGTiBkmgtb")
	unit := strings.ToUpper(strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text[len(number):]), "B"), "I"))
	factor, ok := map[string]int64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit]
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil || !ok:
		return 0, fmt.Errorf("size %q: want a number with K, M or G, such as 64K", text)
	case n <= 0 || n > math.MaxInt64/16/factor:
		return 0, fmt.Errorf("size %q: out of range", text)
	case n*factor%elementBytes != 0:
		return 0, fmt.Errorf("size %q: want a multiple of %d bytes", text, elementBytes)
	}
	return n * factor, nil
}

// What a size takes at most: on the GPU a plain buffer, a batch, a copy, and the copy before that is
// not freed yet; on the host two buffers in Go memory and one in pinned memory, a copy of either, and
// garbage of Go.
const (
	onDevice = 4
	onHost   = 7
)

// fit returns the sizes that there is room for, and notes the others. A fifth of free memory is
// left to others.
func (r *Report) fit(sizes []int64, freeOnDevice, freeOnHost int64) (fitting []int64) {
	for _, size := range sizes {
		switch {
		case size > freeOnDevice/5*4/onDevice:
			r.leaveOut(size, "the GPU has not enough free memory")
		case size > freeOnHost/5*4/onHost:
			r.leaveOut(size, "the host has not enough free memory")
		default:
			fitting = append(fitting, size)
		}
	}
	return fitting
}

// hostMemory returns how much memory this process can have: what the system says is available, and
// less in a container with a limit. Systems that do not say have enough.
func hostMemory(root string) int64 {
	free := int64(math.MaxInt64)
	if file, err := os.Open(root + "proc/meminfo"); err == nil {
		defer file.Close()
		for s := bufio.NewScanner(file); s.Scan(); {
			var kilobytes int64
			if _, err := fmt.Sscanf(s.Text(), "MemAvailable: %d kB", &kilobytes); err == nil {
				free = kilobytes << 10
			}
		}
	}
	for _, group := range [][2]string{
		{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"},
		{"sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"},
	} {
		limit, errLimit := readNumber(root + group[0])
		used, errUsed := readNumber(root + group[1])
		if errLimit == nil && errUsed == nil {
			free = min(free, max(0, limit-used))
		}
	}
	return free
}

func readNumber(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
