// Package metamorphic runs random programs of public calls of this module, and knows what each of them must see.
//
// A [Program] is a list of operations on named objects. A model in Go knows each value, which memories an object holds, and when each
// producer must be released: once, after the last use, and soon. A program runs in each of [Worlds], and sees the same in all of them. The
// producers and consumers are those of package foreign: they count releases, and overwrite their memory at the last one. The simulated
// driver reports accesses that are not ordered. After a program nothing is left: no object, byte, goroutine, file or mapping.
//
// [Generate] draws programs, [Reduce] makes one that fails smaller, and [Source] prints it as Go. A [Work] is what a process of the tests
// runs, so that a crash, or a report of a sanitizer, is found like any other failure.
//
// The package imports public packages and peers of tests only, so that it judges any form of what is not public.
package metamorphic
