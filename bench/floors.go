//go:build cgo

package main

import "github.com/arrowdevice/arrowdevice/bench/peers"

// cFloor is a C program that does no more than it must.
const cFloor = "C floor"

// goFloor is a Go program that does no more than it must.
const goFloor = "Go floor"

// floor is the least that an operation takes: one in C of exports and streams, and one in Go of imports and wraps.
func (s shape) floor(name string, elsewhere bool) []peer {
	switch {
	case name == exportToC:
		return s.floorInC(elsewhere, (*peers.Producer).Floor)
	case name == streamToC:
		return s.floorInC(elsewhere, (*peers.Producer).FloorStream)
	case name == wrapToC && s.name == "int64" && !elsewhere:
		c := must(peers.NewConsumer(1, false))
		return []peer{{name: goFloor, do: func(n int) { peers.WrapFloor(s.rec, c, n) }, close: c.Close}}
	case name == importRelease:
		p := s.producer()
		return []peer{{name: goFloor, do: p.ImportFloor, close: p.Close}}
	case name == importView && s.name == "int64":
		p := s.producer()
		return []peer{{name: goFloor, do: p.ViewFloor, close: p.Close}}
	}
	return nil
}

func (s shape) floorInC(elsewhere bool, floor func(p *peers.Producer, to *peers.Consumer, n int) error) []peer {
	p, c := s.producer(), s.consumer(elsewhere)
	return []peer{{name: cFloor, do: func(n int) { check(floor(p, c, n)) }, close: inOrder([]func(){p.Close, c.Close})}}
}
