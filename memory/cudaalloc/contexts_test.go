package cudaalloc_test

import (
	"context"
	"testing"
	"time"
)

// background is the context of calls that no test ends.
var background = context.Background()

// seconds returns a context for calls that may take some seconds.
func seconds(t *testing.T, n time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(background, n*time.Second)
	t.Cleanup(cancel)
	return ctx
}
