//go:build !cgo

package cuda

// This package calls C, as all packages that import it need. Go disables cgo where
// CGO_ENABLED is 0 and, unless CGO_ENABLED is 1, where it finds no C compiler.
const _ = arrowdevice_needs_cgo__set_CGO_ENABLED_1_and_install_a_C_compiler
