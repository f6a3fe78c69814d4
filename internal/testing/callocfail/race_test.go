//go:build race

package callocfail_test

const mode = "" // the C is the same
