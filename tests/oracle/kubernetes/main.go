// Oracle answers questions with Kubernetes' own packages.
package main

import (
	"io"

	"k8s.io/klog/v2"
	"kscale.dev/oracle/harness"
)

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	harness.Main()
}
