package triton_test

import (
	"net/url"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// The names of regions are those that a path has as they are.
func TestRegionNames(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	batch := upload(t, m.GPUs[0].Shareable(), numbers, numbersRows)
	for _, name := range []string{"a", "Z9", "scores-1.0_b~", "...", "a b", "a/b", "a%20b", "ä", "a?", "a+b", "a\x00", ".", "..", "\xff", ""} {
		region, err := triton.NewRegion(background, name, batch)
		if name != "" && name == url.PathEscape(name) && url.QueryEscape(name) == name && (&url.URL{Path: "/"}).JoinPath(name).Path == "/"+name {
			assert.NoError(t, err)
			region.Close()
			continue
		}
		assert.ErrorContains(t, err, `name = `)
		assert.ErrorContains(t, err, `which paths of Triton's HTTP API do not escape`)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		_, err = triton.NewOutputs(background, name, m.GPUs[0], numbers, 1)
		assert.ErrorContains(t, err, `which paths of Triton's HTTP API do not escape`)
	}
}
