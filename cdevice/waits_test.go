package cdevice_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// soon returns a context for calls that must not take long.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// ends runs an export that waits for ever, and checks that it ends soon after its context.
func ends(t *testing.T, what string, want error, export func() error) {
	t.Helper()
	var err error
	within.Limit(t, 2*time.Second, what, func() error { err = export(); return nil })
	assert.ErrorIs(t, err, want, what)
}

// closes closes a reader whose source can end.
func closes(t testing.TB, r interface{ Close(context.Context) error }) {
	t.Helper()
	within.Seconds(t, "Close", func() error { return r.Close(background) })
}

// expires calls close with a context that ends while the source is in use: close must
// return soon after that. Any goroutine may call it.
func expires(t testing.TB, close func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
	defer cancel()
	begin := time.Now()
	assert.ErrorIs(t, close(ctx), context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 2*time.Second, "it should be 100 ms, and a loaded machine has more")
}

// release releases a reader and waits until the items of its goroutine are released too.
func release(t testing.TB, r *cdevice.RecordReader) {
	t.Helper()
	r.Release()
	streamsEnd(t)
}

// streamsEnd waits until no stream and no array of a producer is held.
func streamsEnd(t testing.TB) {
	t.Helper()
	within.Eventually(t, "the release of all streams", func() bool {
		s := cdevice.ReadStats()
		return s.ExportedStreams == 0 && s.ImportedStreams == 0 && s.ImportedArrays == 0
	})
}

// ready is Ready of a batch or an array, which must not fail.
func ready(t *testing.T, b interface{ Ready() (bool, error) }) bool {
	t.Helper()
	done, err := b.Ready()
	require.NoError(t, err)
	return done
}
