//go:build !asan && !race

package callocfail_test

const mode = "-asan=false"
