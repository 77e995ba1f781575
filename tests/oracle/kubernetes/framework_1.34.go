//go:build kubernetes1.34

package main

import (
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Types that are in another package before 1.35.
type (
	deviceClassLister    = framework.DeviceClassLister
	filterPlugin         = framework.FilterPlugin
	pluginHandle         = framework.Handle
	plugin               = framework.Plugin
	preFilterPlugin      = framework.PreFilterPlugin
	preFilterResult      = framework.PreFilterResult
	resourceClaimTracker = framework.ResourceClaimTracker
)

// optionsOfMinor are options that not every minor version has.
func optionsOfMinor(*staticInformers, *internalcache.Snapshot) []frameworkruntime.Option {
	return nil
}

// watchDeviceClasses does nothing: this minor lists device classes each time.
func watchDeviceClasses(*dynamicresources.DefaultDRAManager, *staticInformers) {}
