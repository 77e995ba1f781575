package harness

import (
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// AtVirtualTime runs f in a bubble of virtual time that starts at now. Upstream reads the clock with time.Now();
// the bubble answers it, and time passes only while every goroutine of the bubble waits.
func AtVirtualTime(now time.Time, f func() error) (err error) {
	var t testing.T
	synctest.Test(&t, func(*testing.T) {
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			}
		}()
		time.Sleep(time.Until(now))
		err = f()
	})
	return err
}
