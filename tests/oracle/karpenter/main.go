// The oracle's program that links Karpenter: it asks its provisioning scheduler for decisions.
package main

import (
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"kscale.dev/oracle/harness"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	harness.Main()
}
