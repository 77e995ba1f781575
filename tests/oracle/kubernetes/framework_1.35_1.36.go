//go:build kubernetes1.35 || kubernetes1.36

package main

import (
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// optionsOfMinor are options that not every minor version has.
func optionsOfMinor(factory *staticInformers, _ *internalcache.Snapshot) []frameworkruntime.Option {
	csi := nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())
	return []frameworkruntime.Option{frameworkruntime.WithSharedCSIManager(csi)}
}
