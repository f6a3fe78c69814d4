package metamorphic

func init() {
	register(&verb{name: "produce many", weight: 7, draw: drawProduceMany, expect: expectProduceMany, do: doProduceMany})
}

// drawProduceMany draws several producers of one shape, as the batches of streams are.
func drawProduceMany(g *generator) (Op, bool) {
	o, ok := drawProduce(g)
	if len(o.Args) > 0 && g.IntN(3) > 0 { // most streams are of batches
		o.Args[0] = "batch"
	}
	if len(o.Args) > 0 && o.arg(6) == "held" {
		o.Args[6] = "event" // a stream has room for so much work only
	}
	o.Args = append([]string{num(2 + g.IntN(4))}, o.Args...)
	return o, ok
}

// each returns the operations that make the producers one by one. Their values differ.
func each(o Op) (all []Op) {
	for i := range o.num(0) {
		one := Op{Out: o.Out, Verb: "produce", Args: append([]string{}, o.Args[1:]...)}
		if i > 0 {
			one.Out += "." + num(i)
		}
		one.Args[3] = num(max(0, one.num(3)-i%2))
		one.Args[4] = num(one.num(4) + 10*i)
		all = append(all, one)
	}
	return all
}

func expectProduceMany(m *model, o Op) (string, bool) {
	for _, one := range each(o) {
		if text, ok := expectProduce(m, one); !ok {
			return text, false
		}
	}
	return "ok", true
}

func doProduceMany(r *run, o Op) string {
	for _, one := range each(o) {
		if text := doProduce(r, one); text != "ok" {
			return text
		}
	}
	return "ok"
}
