// Oracle answers questions with the packages of the Vertical Pod Autoscaler.
package main

import (
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"kscale.dev/oracle/harness"
)

func main() {
	klog.SetLogger(logr.Discard())
	harness.Main()
}
