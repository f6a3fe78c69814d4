package fielderr

import (
	"context"
	"fmt"
)

// Absent returns the error for an argument that is nil.
func Absent(op, name, want string) error { return Invalid(op, name, "nil", want) }

// CheckContext returns an error if ctx is nil.
func CheckContext(op string, ctx context.Context) error {
	if ctx == nil {
		return Absent(op, "ctx", "a context")
	}
	return nil
}

// ContextError returns the error of an operation whose context is done, or nil.
func ContextError(ctx context.Context, operation string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cdevice: %s: %w", operation, err)
	}
	return nil
}
