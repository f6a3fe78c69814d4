package metamorphic

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

var every = regexp.MustCompile("")

// A program may be of some operations only.
func TestSomeOperationsAreDrawn(t *testing.T) {
	match := regexp.MustCompile("^(produce|import|slice|release)$")
	for seed := range uint64(20) {
		p := Generate(seed, 40, match)
		assert.Len(t, p.Ops, 40)
		for _, o := range p.Ops {
			assert.Regexp(t, match, o.Verb)
		}
	}
}

// Each operation is drawn, and each fault of a struct.
func TestOperationsAreDrawn(t *testing.T) {
	drawn, spoiled := map[string]int{}, map[string]int{}
	const programs = 1200
	for seed := range uint64(programs) {
		for _, o := range Generate(seed, 120, every).Ops {
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
