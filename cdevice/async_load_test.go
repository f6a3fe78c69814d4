package cdevice_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// hammeredEnv is set where a hammer test runs under load: how many streams it makes.
const hammeredEnv = "CDEVICE_HAMMERED"

// hammered is how many streams a hammer test makes. Under load, there are goroutines and threads of
// C beside it that do not sleep.
func hammered(t *testing.T) int64 {
	t.Helper()
	text, loaded := os.LookupEnv(hammeredEnv)
	if !loaded {
		return 10_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	end := cpeer.Load(2)
	var over atomic.Bool
	for range 2 {
		go func() {
			for !over.Load() {
			}
		}()
	}
	t.Cleanup(func() {
		over.Store(true)
		end()
	})
	return n
}

// The hammers on one core, which other threads want too: all that lies between two steps of a stream
// may then take as long as many other streams.
func TestAsyncHammersOnOneCoreUnderLoad(t *testing.T) {
	if _, loaded := os.LookupEnv(hammeredEnv); loaded {
		t.Skip("this is the one under load")
	}
	ctx, cancel := context.WithTimeout(background, 3*time.Minute)
	defer cancel()
	for _, test := range []string{"TestAsyncHammer", "TestAsyncHammerOfTheProducer"} {
		cmd := emulated.CommandContext(ctx, os.Args[0], "-test.run=^"+test+"$", "-test.v")
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", hammeredEnv+"=400")
		output, err := onOneCore(cmd)
		require.NoError(t, err, "%s", output)
		assert.Contains(t, output, "--- PASS: "+test+" ")
	}
}

// onOneCore runs the command where all its threads share one core.
func onOneCore(cmd *exec.Cmd) (output string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with this goroutine
		if err = pinToOneCore(); err != nil {
			return
		}
		var text []byte
		text, err = cmd.CombinedOutput()
		output = string(text)
	}()
	<-done
	return output, err
}
