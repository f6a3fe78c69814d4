//go:build !goexperiment.cgocheck2

package metamorphic

const underCgocheck = false
