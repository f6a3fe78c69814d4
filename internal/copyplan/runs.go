package copyplan

import (
	"sort"

	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// findRun returns the run that holds the element, or the number of runs.
func findRun(ends *tree.Node, element int64) int64 {
	return int64(sort.Search(int(ends.Length), func(i int) bool { return hostread.RunEnd(ends, int64(i)) > element }))
}

// cutRunEnds returns the ends of runs [first, last), minus by, and at most length.
func cutRunEnds(ends *tree.Node, first, last, by, length int64) part {
	switch layout.ByteWidth(ends.Storage()) {
	case 2:
		return moveEnds[int16](ends, first, last, by, length)
	case 4:
		return moveEnds[int32](ends, first, last, by, length)
	}
	return moveEnds[int64](ends, first, last, by, length)
}

func moveEnds[T int16 | int32 | int64](ends *tree.Node, first, last, by, length int64) part {
	dst, p := makePart[T](last - first)
	for i := range dst {
		dst[i] = T(min(hostread.RunEnd(ends, first+int64(i))-by, length))
	}
	return p
}
