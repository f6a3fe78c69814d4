//go:build goexperiment.cgocheck2

package metamorphic

// underCgocheck reports whether stores of Go pointers into C memory are checked: arrow-go's package cdata stores pointers that are not pinned.
const underCgocheck = true
