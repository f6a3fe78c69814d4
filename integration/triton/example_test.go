package triton

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

// The program of the cookbook, which begins with nothing but an address.
func TestExample(t *testing.T) {
	s := cuda(t).connect(t)
	driver, err := cudasim.Build()
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "triton")
	out, err := exec.Command("go", "build", "-o", program, "../../examples/triton").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for model, want := range map[string]string{
		"next": "y: [2 3 4 5]\n",
		"fail": "the model failed",
	} {
		run := exec.Command(program, s.address, model)
		run.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+driver, "CUDASIM=devices=2")
		out, err := run.CombinedOutput()
		assert.Equal(t, model == "fail", err != nil, "%s", out)
		assert.Contains(t, string(out), want)
	}
}
