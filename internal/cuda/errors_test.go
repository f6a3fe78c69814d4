package cuda

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every CUresult there may be, so that none joins a kind by accident.
func TestKindsOfCodes(t *testing.T) {
	gone := map[Code]bool{
		4: true, 201: true, 214: true, 220: true, 226: true, 700: true, 702: true, 709: true, 710: true, 714: true, 715: true,
		716: true, 717: true, 718: true, 719: true, 721: true, 810: true, 911: true,
	}
	for c := Code(-1); c <= 1100; c++ {
		assert.Equal(t, gone[c], c.ContextGone(), int(c))
		assert.Equal(t, 900 <= c && c <= 908, c.Capture(), int(c))
	}
}
