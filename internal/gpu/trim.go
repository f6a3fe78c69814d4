package gpu

import (
	"context"
	"fmt"
)

// Trim gives the unused memory of the pool and the caches, and unused streams and events, back to the
// driver, once the work that uses memory that was freed has completed.
func (g *GPU) Trim(ctx context.Context) error {
	d := &g.Deferred
	if err := d.Flush(ctx); err != nil { // blocks that are freed now go to lists and caches
		return err
	}
	if err := g.Heap.trims.run(ctx, &d.guard); err != nil {
		return fmt.Errorf("cuda: trim %s: %w", g.Ctx, err)
	}
	failed := d.failedSince()
	g.Heap.trimCaches()
	backlogDone := g.Backlog.Trim()
	g.Events.drain()
	g.Streams.drain()
	if err := d.Flush(ctx); err != nil {
		return err
	}
	// mutant: if _, err := failed, error(nil); err != nil {
	if err := failed(); err != nil {
		return err
	}
	if g.Heap.pool == 0 {
		return nil
	}
	// Memory that was freed in stream order is free once its stream got there.
	if err := d.idle(ctx); err != nil {
		return err
	}
	backlogDone()
	return g.Ctx.TrimPool(g.Heap.pool)
}
