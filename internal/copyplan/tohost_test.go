package copyplan

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// chunks is a device whose memory is these allocations.
type chunks struct {
	device.Device
	known  []device.Allocation
	failed device.Ptr // of which a lookup is an error
}

var errLookup = errors.New("the driver cannot tell")

func (c chunks) Lookup(p device.Ptr) (device.Allocation, error) {
	for _, a := range c.known {
		if p >= a.Start && (p < a.Start+device.Ptr(a.Size) || p == a.Start) {
			return a, nil
		}
	}
	if p == c.failed {
		return device.Allocation{}, errLookup
	}
	return device.Allocation{ID: device.CPUDevice().ID()}, nil
}

// A large copy needs memory to the end of its parts, in one allocation or in neighbours of the same GPU.
func TestMemoryOfALargeCopy(t *testing.T) {
	const start, each = 1 << 40, 1 << 30
	first, other := device.ID{Type: device.CUDA}, device.ID{Type: device.CUDA, Ordinal: 1}
	at := func(id device.ID, n, size int64) device.Allocation {
		return device.Allocation{ID: id, Start: device.Ptr(start + n*each), Size: size}
	}
	for name, row := range map[string]struct {
		known  []device.Allocation
		failed int64
		want   string
	}{
		"one":               {[]device.Allocation{at(first, 0, 3*each)}, 0, ""},
		"neighbours":        {[]device.Allocation{at(first, 0, each), at(first, 1, each), at(first, 2, each)}, 0, ""},
		"of unknown size":   {[]device.Allocation{at(first, 0, 0)}, 0, ""},
		"one byte short":    {[]device.Allocation{at(first, 0, 3*each-1)}, 0, "want an allocation with 3221225472 bytes"},
		"a gap":             {[]device.Allocation{at(first, 0, each), at(first, 2, each)}, 0, "want an allocation with 3221225472 bytes"},
		"of another GPU":    {[]device.Allocation{at(first, 0, each), at(other, 1, 2*each)}, 0, "want an allocation with 3221225472 bytes"},
		"nothing":           {nil, 0, "want an allocation with 3221225472 bytes"},
		"an error":          {nil, start, errLookup.Error()},
		"an error further":  {[]device.Allocation{at(first, 0, each)}, start + each, errLookup.Error()},
		"unknown from here": {[]device.Allocation{at(first, 0, each), at(first, 1, 0)}, 0, "want an allocation with 3221225472 bytes"},
	} {
		dev := chunks{known: row.known, failed: device.Ptr(row.failed)}
		l := &blockLayout{parts: []part{madeOf([]byte{1}), {Addr: start, Size: 3 * each}, {Addr: 8, Size: leastRead - 1}}, size: 3 * each}
		if err := checkAllocations(dev, l); row.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, row.want, name)
		}
	}
	assert.NoError(t, checkAllocations(chunks{}, &blockLayout{parts: []part{{Addr: start, Size: 2 * leastRead}}, size: leastLookedUp - 1}), "not asked")
	assert.NoError(t, checkAllocations(nil, &blockLayout{parts: []part{{Addr: start, Size: each}}, size: each}), "memory of the CPU")
}
