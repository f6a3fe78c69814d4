package schema

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// However many schemas there are, and however large, the caches hold few.
func TestCachesAreBounded(t *testing.T) {
	noLeak(t)
	emptyCaches(t)
	wide := func(n int, name string) *arrow.Schema {
		fields := make([]arrow.Field, n)
		for i := range fields {
			fields[i] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
		}
		return arrow.NewSchema(fields, nil)
	}
	var keep []*arrow.Schema
	for i := range 3 * cacheSlots {
		size := 10
		if i%3 == 0 {
			size = maxCost / 8
		}
		s := wide(size, fmt.Sprint("column ", i))
		keep = append(keep, s)
		for range 2 {
			imported(t, exported(t, s))
		}
		checkBound(t, &knownSchemas)
		checkBound(t, &templates)
	}
	large := wide(maxCost/2+1, "x")
	for range 3 {
		imported(t, exported(t, large))
	}
	assert.Nil(t, templates.find(addressKey(large)))
	checkBound(t, &knownSchemas)
	runtime.KeepAlive(keep) // so that no two schemas have the same address
}

func checkBound[T any](t *testing.T, c *cache[T]) {
	t.Helper()
	total := 0
	for i := range c.slots {
		if e := c.slots[i].Load(); e != nil {
			total += e.cost
		}
	}
	assert.Equal(t, total, c.total)
	assert.LessOrEqual(t, total, maxCost)
}

func TestCachesFromManyGoroutines(t *testing.T) {
	noLeak(t)
	emptyCaches(t)
	var schemas []*arrow.Schema
	var want []string
	for i := range 2 * cacheSlots {
		schemas = append(schemas, table(fmt.Sprint(i)))
		want = append(want, text(t, exported(t, schemas[i])))
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 600 {
				k := (i*(g+1) + g) % len(schemas)
				s := new(abi.ArrowSchema)
				if !assert.NoError(t, ExportSchema(schemas[k], s)) {
					return
				}
				got, err := ImportSchema(s)
				if !assert.NoError(t, err) || !assert.NoError(t, ExportSchema(got, s)) {
					return
				}
				assert.Equal(t, want[k], render(s))
				bridge.CallSchemaRelease(s)
			}
		})
	}
	all.Wait()
}
