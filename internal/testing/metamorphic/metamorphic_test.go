package metamorphic

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var (
	seedFlag = flag.Uint64("seed", 1, "the first seed")
	forFlag  = flag.Duration("for", 10*time.Second, "how long")
	opsFlag  = flag.Int("ops", 60, "operations of a program")
)

func TestSmoke(t *testing.T) {
	began := time.Now()
	var open []*setting
	for _, w := range Worlds {
		open = append(open, w.open(t))
	}
	times := map[string]time.Duration{}
	for seed := *seedFlag; time.Since(began) < *forFlag; seed++ {
		p := Generate(seed, *opsFlag)
		for _, s := range open {
			start := time.Now()
			_, f := execute(s, p)
			times[s.Name] += time.Since(start)
			if f != nil {
				fmt.Println(p)
				fmt.Println(f)
				p = Reduce(p, func(p Program) bool {
					s.machine.ForgetViolations()
					_, f := execute(s, p)
					return f != nil
				})
				s.machine.ForgetViolations()
				_, f = execute(s, p)
				t.Fatalf("seed %d: %v\n%v", seed, f, p)
			}
		}
		t.Log(seed)
	}
	t.Log(times)
}
