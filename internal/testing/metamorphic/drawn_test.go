package metamorphic

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each operation is drawn, and each fault of a struct.
func TestOperationsAreDrawn(t *testing.T) {
	drawn, spoiled := map[string]int{}, map[string]int{}
	const programs = 1200
	for seed := range uint64(programs) {
		for _, o := range Generate(seed, 120).Ops {
			drawn[o.Verb]++
			if o.Verb == "import wrong" {
				spoiled[o.arg(6)]++
			}
		}
	}
	for _, name := range names() {
		assert.Positive(t, drawn[name], name)
		t.Logf("%6.2f per program: %s", float64(drawn[name])/programs, name)
	}
	for _, name := range faultNames {
		assert.Positive(t, spoiled[name], name)
	}
}
