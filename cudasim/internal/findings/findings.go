// Package findings makes what a simulated driver has found readable: equal findings are one, with a count, and a program that
// uses this module learns the remedy in its own words.
package findings

import (
	"fmt"
	"regexp"
	"strings"
)

// Merge returns one text for all findings that differ only in addresses, sizes and numbers of streams, in the order of the
// first ones, with their count.
func Merge(all []string) (merged []string) {
	at := map[string]int{}
	var counts []int
	for _, text := range all {
		key := numbers.ReplaceAllString(text, "#")
		i, found := at[key]
		if !found {
			i = len(merged)
			at[key] = i
			merged, counts = append(merged, text), append(counts, 0)
		}
		counts[i]++
	}
	for i, n := range counts {
		if n > 1 {
			merged[i] = fmt.Sprintf("%d times, the first: %s", n, merged[i])
		}
	}
	return merged
}

var numbers = regexp.MustCompile(`\b0x[0-9a-f]+\b|\bstream \d+\b|\b\d+ bytes\b`)

// unordered has the call of a violation that came too early, and the places of the earlier and the later call.
var unordered = regexp.MustCompile(`(?s)^(?:\d+ times, the first: )?(\w+) .*is not ordered after it.*; the earlier was queued at (.*?)(?:; the later at (.*))?$`)

// Remedy says what a Go program that uses package cdevice calls against a violation. It is empty for others.
func Remedy(violation string) string {
	parts := unordered.FindStringSubmatch(violation)
	if parts == nil {
		return ""
	}
	call, earlier, later := parts[1], byCdevice(parts[2]), byCdevice(parts[3])
	switch {
	case !earlier && !later && !strings.Contains(parts[2]+parts[3], ".go:"):
		return ""
	case strings.HasPrefix(call, "cuMemFree") && later:
		return "batch.UsedOn(stream), with the stream of the earlier call, before batch.Release()"
	case strings.HasPrefix(call, "cuMemFree"):
		return "m.Free(stream), with the stream of the last work that uses m"
	case !strings.Contains(parts[2], ".go:") && !later:
		return "batch.WaitOn(stream), with the stream of the later call, before it; or the producer has set no sync_event"
	case earlier:
		return "batch.WaitOn(stream), with the stream of the later call, before it"
	case later && !strings.Contains(parts[2], ".go:"):
		return "the producer sets sync_event of its struct to an event that it records after the earlier call"
	case later:
		return "filled, err := batch.WithEvent(stream), with the stream of the earlier call, after it: pass filled on"
	}
	return ""
}

// byCdevice reports whether a place is a call of package cdevice.
func byCdevice(place string) bool { return strings.Contains(place, ", in cdevice.") }
