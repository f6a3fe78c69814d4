//go:build !(amd64 || arm64 || loong64 || mips64le || ppc64le || riscv64 || s390x || mips64 || ppc64)

package abi

// The mirrors of this package have the layout of 64-bit platforms.
const _ = arrowdevice_needs_a_64_bit_platform
