package bandwidth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrint(t *testing.T) {
	r := &Report{Arrowdevice: "v1.2.3", Simulated: true, CUDA: "12.4", TimePerNS: 200e6, Device: Device{Ordinal: 1, Name: "A GPU"}}
	rates := map[Direction]map[Method][]float64{
		ToDevice: {Plain: {2.1, 11}, Pinned: {5, 24.9}, Ours: {1, 20}, OursPinned: {0.004, 24}},
		ToHost:   {Plain: {1.9, 8}, Pinned: {5.2, 260}, Ours: {0.9, 7}, OursReused: {1.2, 16}, OursPinned: {1.5, 247}},
	}
	for i, size := range []int64{64 << 10, 64 << 20} {
		for _, d := range directions {
			for _, m := range d.methods() {
				r.Points = append(r.Points, Point{Direction: d, Method: m, Bytes: size, PerSecond: rates[d][m][i] * 1e9})
			}
		}
	}
	r.leaveOut(2<<30, "the GPU has not enough free memory")
	r.summarize()
	var out strings.Builder
	r.Print(&out)
	assert.Equal(t, `arrowdevice bandwidth v1.2.3: cuda:1 A GPU, CUDA 12.4, 200 ms for each point
simulated driver: no GPU. The figures mean nothing; they only show that everything runs.

host -> device, GB/s
                      plain           pinned  ours, Go memory     ours, pinned
    64 KiB             2.10             5.00             1.00           0.0040
    64 MiB             11.0             24.9             20.0             24.0

device -> host, GB/s
                      plain           pinned  ours, Go memory     ours, reused     ours, pinned
    64 KiB             1.90             5.20            0.900             1.20             1.50
    64 MiB             8.00              260             7.00             16.0              247

plain            cuMemcpy of pageable memory that has been used before
pinned           one cuMemcpyAsync of pinned memory, which is the limit
ours, Go memory  CopyToDevice of a record batch in Go memory, CopyToHost into fresh one
ours, reused     CopyToHost into memory that has been used before
ours, pinned     both of a record batch in pinned memory (package hostpinned)

left out: the GPU has not enough free memory for 2 GiB

At 64 MiB, host -> device, ours has 80 % of the bandwidth of one pinned copy,
and 96 % where the record batch is in pinned memory. Beside plain copies, with
memory that has been used before, it has 182 %.
At 64 MiB, device -> host, ours has 3 % of the bandwidth of one pinned copy, and
95 % where the record batch is in pinned memory. Beside plain copies, with
memory that has been used before, it has 200 %.
`, out.String())
}
