package main

import (
	"os"
	"testing"

	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

func TestMain(m *testing.M) { os.Exit(goroutineleak.Run(m)) }
